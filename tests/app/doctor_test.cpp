#include <gtest/gtest.h>

#include <fstream>

#include "core/json.h"
#include "hub/hub_server.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

class Doctor : public testing::Test {
  protected:
    /// Runs it with these variables set; the disk that is measured is in `more`, or none.
    Outcome run(const std::string& variables, const std::string& more = "") const {
        const char* nowhere = more.find("--dir") == std::string::npos ? "--dir /proc/nowhere" : "";
        return test::run_shell(
            fmt::format("{} {} doctor {} {} 2>&1", variables, DROVER_BINARY, nowhere, more));
    }
    std::string on_disk() const { return fmt::format("--dir '{}'", folder_.path().string()); }
    /// The object that it prints, whatever its exit status.
    Json examined(const std::string& variables, const std::string& more = "") const {
        const Outcome outcome = run(variables, "--json " + more);
        Json json = Json::parse(outcome.output, nullptr, false);
        EXPECT_TRUE(json.is_object()) << outcome.output;
        if (!json.is_object()) return {};
        EXPECT_EQ(outcome.exit_code, json["can_train_on_cpu"] == true ? 0 : 1) << outcome.output;
        return json["sections"];
    }
    static std::string problems(const Json& section) {
        std::string texts;
        for (const Json& finding : section["findings"])
            if (finding["mark"] == "problem") {
                EXPECT_NE(finding.value("remedy", ""), "") << finding;
                texts += finding["text"].get<std::string>() + "\n";
            }
        return texts;
    }

    test::TemporaryFolder folder_;
    test::Variables caches_{{{"DROVER_CACHE", "/proc/nowhere"},
                             {"HF_HOME", (folder_ / "home").string()},
                             {"HF_TOKEN", ""},
                             {"HF_TOKEN_PATH", ""},
                             {"HUGGING_FACE_HUB_TOKEN", ""}}};
};

TEST_F(Doctor, DescribesThisMachineOnOnePage) {
    const Outcome outcome = run("DROVER_CACHE=" + (folder_ / "cache").string(), on_disk());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    for (const char* part : {"drover ", "train on the CPU          yes", "\nCPU\n", "\nMemory\n", "\nGPUs\n",
                             "\nModules\n", "\nSeveral processes\n", "\nDisk\n", "\nCaches\n",
                             "\nHugging Face Hub\n", "Training on the CPU is possible."})
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    EXPECT_TRUE(fs::is_empty(folder_.path())) << "it leaves something behind";
}

TEST_F(Doctor, RefusesAFolderWithoutAName) {
    const Outcome outcome = run("", "--dir ''");
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.output.find("--dir is empty."), std::string::npos) << outcome.output;
}

TEST_F(Doctor, SaysWhyAModuleIsNotLoaded) {
    const Json absent = examined("DROVER_CURL_MODULE=/nonexistent/file.so");
    EXPECT_NE(
        problems(absent["modules"]).find("drover_curl.so was not found (searched: /nonexistent/file.so)"),
        std::string::npos)
        << absent["modules"];
    EXPECT_EQ(absent["modules"]["facts"]["curl"]["loaded"], false);
    EXPECT_EQ(absent["modules"]["facts"]["mpi"]["loaded"], true);
    const std::string text = folder_ / "text.so";
    std::ofstream(text) << "not a library";
    const Json wrong = examined("DROVER_CUDA_MODULE=" + text);
    EXPECT_NE(problems(wrong["modules"]).find("the module " + text + " cannot be loaded (" + text + ": "),
              std::string::npos)
        << wrong["modules"];
    // Another module is no module of this name.
    const std::string other = absent["modules"]["facts"]["mpi"]["file"];
    EXPECT_NE(problems(examined("DROVER_ARROW_MODULE=" + other)["modules"])
                  .find("belongs to another version of the program"),
              std::string::npos);
}

TEST_F(Doctor, DescribesWhatADriverShows) {
    const std::string fake = "LD_LIBRARY_PATH=" FAKE_GPU_DRIVER_FOLDER ":$LD_LIBRARY_PATH";
    const Json gpu = examined(fake)["gpu"];
    ASSERT_EQ(gpu["facts"]["gpus"].size(), 1u) << gpu;
    const Json& only = gpu["facts"]["gpus"][0];
    EXPECT_EQ(only["name"], "Fake GPU 40");
    EXPECT_EQ(only["compute_capability"], "8.6");
    EXPECT_EQ(only["memory"], std::size_t{24} << 30);
    EXPECT_EQ(only["free_memory"], std::size_t{23} << 30);
    EXPECT_EQ(gpu["facts"]["driver_version"], "580.17.99");
    const std::string nowhere = problems(examined(fake + " DROVER_CUDA_MODULE=/nonexistent")["gpu"]);
    EXPECT_NE(nowhere.find("No GPU can be used: the module drover_cuda.so was not found"), std::string::npos)
        << nowhere;
}

TEST_F(Doctor, EndsWithOneWhereNothingCanBeTrained) {
    const Outcome outcome = run("", "--dir /proc/here");
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("train on the CPU          no   The output folder /proc/here cannot be"),
              std::string::npos)
        << outcome.output;
    EXPECT_EQ(run("", "--jsn").exit_code, 2);
}

TEST_F(Doctor, NeverShowsTheToken) {
    for (const char* format : {"", "--json"}) {
        const Outcome outcome = run("HF_TOKEN=hf_0123456789secretsecret", format);
        EXPECT_EQ(outcome.output.find("secret"), std::string::npos) << outcome.output;
        EXPECT_NE(outcome.output.find("A token is in HF_TOKEN"), std::string::npos) << outcome.output;
    }
}

TEST_F(Doctor, WorksWithoutAnEnvironment) {
    const Json sections = examined("env -i");
    EXPECT_NE(problems(sections["caches"]).find("neither DROVER_CACHE nor HOME is set"), std::string::npos)
        << sections["caches"];
    EXPECT_EQ(examined("env -i HOME=/nonexistent")["cpu"]["facts"].contains("used"), true);
}

TEST_F(Doctor, WorksWithLittleOfEverything) {
    const std::string limits = "ulimit -v 3000000; ulimit -f 200; ulimit -n 30; ";
    if (test::run_shell(limits + DROVER_BINARY " --version >/dev/null").exit_code != 0)
        GTEST_SKIP() << "the program does not start with so little address space: it has a sanitizer";
    const Json sections = examined(limits, on_disk());
    EXPECT_EQ(sections["memory"]["facts"]["address_space_left"].is_number(), true) << sections["memory"];
    EXPECT_NE(problems(sections["disk"]).find("File too large"), std::string::npos) << sections["disk"];
}

}  // namespace
}  // namespace drover
