#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <regex>
#include <set>

#include "app/mesh_runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

/// `drover run_clm --profile` from the command line to the files.
class ProfileRuns : public test::MeshRuns {
  protected:
    static constexpr const char* usual = "--max_steps 4 --logging_steps 1 --save_strategy no ";

    std::vector<double> losses(const std::string& output) const {
        std::vector<double> losses;
        for (const Json& record : history(output))
            if (record.contains("loss")) losses.push_back(record.at("loss"));
        return losses;
    }
    /// The files of the only profile in a folder.
    std::set<std::string> files_in(const std::string& logdir) const {
        std::set<std::string> files;
        int runs = 0;
        for (const auto& run : fs::directory_iterator(folder_ / logdir / "plugins/profile")) {
            ++runs;
            for (const auto& entry : fs::directory_iterator(run))
                files.insert(entry.path().filename().string());
        }
        EXPECT_EQ(runs, 1);
        return files;
    }
    static int count_ending(const std::set<std::string>& files, const std::string& end) {
        return static_cast<int>(std::count_if(files.begin(), files.end(),
                                              [&](const std::string& name) { return name.ends_with(end); }));
    }
};

TEST_F(ProfileRuns, TwoProcessesWriteTheirFilesAndTrainAsWithout) {
    const std::string mesh = std::string(usual) + "--fsdp full_shard ";
    const Outcome with = train_on(2, "with", mesh + "--profile_steps 1");
    ASSERT_EQ(with.exit_code, 0) << with.output;
    ASSERT_EQ(train_on(2, "without", mesh).exit_code, 0);
    EXPECT_EQ(losses("with"), losses("without"));
    EXPECT_EQ(losses("with").size(), 4u);
    EXPECT_EQ(read_text_file(folder_ / "with/model.safetensors"),
              read_text_file(folder_ / "without/model.safetensors"));

    const std::set<std::string> files = files_in("with/profile");
    EXPECT_EQ(files.size(), 5u);
    for (const char* end : {"-rank0.xplane.pb", "-rank1.xplane.pb", "-rank0.trace.json.gz",
                            "-rank1.trace.json.gz", "all_ranks.json.gz"})
        EXPECT_EQ(count_ending(files, end), 1) << end;
    for (const char* line : {"Profile of 1 step of rank 0, ", "  Communication: ", "The profile is in "})
        EXPECT_NE(with.output.find(line), std::string::npos) << line << "\n" << with.output;
    EXPECT_FALSE(fs::exists(folder_ / "without/profile"));
}

TEST_F(ProfileRuns, VariablesChooseTheStepAndTheFolder) {
    for (const auto& [name, value] :
         {std::pair("PROFILE_EPOCH", "0"), std::pair("PROFILE_STEP", "1"),
          std::pair("PROFILE_DURATION_MS", "1"), std::pair("PROFILE_LOGDIR", "traces")})
        setenv(name, value, 1);
    const Outcome run = shell(fmt::format("{} {}", DROVER_BINARY, words("out", usual)));
    for (const char* name : {"PROFILE_EPOCH", "PROFILE_STEP", "PROFILE_DURATION_MS", "PROFILE_LOGDIR"})
        unsetenv(name);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    // Two where the first takes less than the millisecond; the run's last two come after step 1.
    EXPECT_TRUE(std::regex_search(run.output, std::regex("Profile of (1 step|2 steps) of rank 0, ")))
        << run.output;
    EXPECT_EQ(count_ending(files_in("traces"), ".xplane.pb"), 1);
}

TEST_F(ProfileRuns, AFullDiskDoesNotStopTheRun) {
    const fs::path disk = folder_ / "traces";
    fs::create_directories(disk);
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8k") != 0)
        GTEST_SKIP() << "a small file system cannot be mounted here: " << std::strerror(errno);
    const Outcome run = train_on(2, "out", std::string(usual) + "--profile --profile_logdir traces");
    umount(disk.c_str());
    EXPECT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(losses("out").size(), 4u);
    const std::string line = "The profile could not be written to ";
    const std::size_t found = run.output.find(line);
    ASSERT_NE(found, std::string::npos) << run.output;
    EXPECT_NE(run.output.find(": No space left on device (rank ", found), std::string::npos) << run.output;
    EXPECT_EQ(run.output.find(line, found + 1), std::string::npos) << "said twice\n" << run.output;
    EXPECT_EQ(run.output.find("The profile is in "), std::string::npos) << run.output;
}

}  // namespace
}  // namespace drover
