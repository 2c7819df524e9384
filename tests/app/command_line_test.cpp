#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "app/run_drover.h"
#include "support/golden.h"

namespace drover {
namespace {

using test::Outcome;
using test::run;

const std::string examples = std::string(DROVER_SOURCE_DIR) + "/examples/";
const std::string data = " --data " + examples + "data/tinyshakespeare/ids.safetensors";
const std::string config = " --config " + examples + "configs/llama-5m.json";

class CommandLine : public ::testing::Test {
  protected:
    void expect_error(const std::string& arguments, int exit_code, const std::string& part) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << arguments << "\n" << outcome.output;
        EXPECT_TRUE(outcome.output.starts_with("drover: ")) << outcome.output;
    }
    std::string write(const char* name, const std::string& text) {
        std::ofstream(folder_ / name) << text;
        return (folder_ / name).string();
    }
    std::string tiny_config() {
        return write("tiny.json", R"({"vocab_size": 4096, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "llama"})");
    }

    test::TemporaryFolder folder_;
};

TEST_F(CommandLine, HelpAndVersion) {
    EXPECT_EQ(run("--help").exit_code, 0);
    EXPECT_NE(run("--help").output.find("demo"), std::string::npos);
    EXPECT_NE(run("demo --help").output.find("--learning_rate"), std::string::npos);
    EXPECT_EQ(run("--version").exit_code, 0);
}

TEST_F(CommandLine, UsageErrorsExitWithTwo) {
    expect_error("", 2, "subcommand");
    expect_error("dance", 2, "dance");
    expect_error("demo" + config, 2, "--data");
    expect_error("demo" + data, 2, "--config");
    expect_error("demo --stepz 3" + config + data, 2, "--stepz");
    expect_error("demo --steps many" + config + data, 2, "--steps");
    expect_error("demo --steps 0" + config + data, 2, "--steps");
    expect_error("demo --recompute some" + config + data, 2, "--recompute");
}

TEST_F(CommandLine, BadFilesExitWithOneAndASentence) {
    expect_error("demo --config none.json" + data, 1, "none.json");
    expect_error("demo --config " + write("bad.json", "{\"hidden_size\": ") + data, 1,
                 "bad.json is not valid JSON");
    expect_error("demo --config " + write("zero.json", "{\"num_hidden_layers\": 0}") + data, 1,
                 "num_hidden_layers is 0");
    expect_error("demo --config " + write("small.json", "{\"vocab_size\": 50}") + data, 1,
                 "vocab_size is 50");
    expect_error("demo --data none.safetensors" + config, 1, "none.safetensors");
    expect_error("demo --data " + write("cut.safetensors", "123") + config, 1, "cut.safetensors");
    expect_error("demo --model " + folder_.path().string() + config + data, 1, folder_.path().string());
    expect_error("demo --block_size 200000" + config + data, 1, "too few");
}

TEST_F(CommandLine, TrainsSavesAndStartsAgainFromTheSavedModel) {
    const std::string saved = (folder_ / "out").string();
    const std::string size = " --batch 2 --block_size 32" + data;
    const Outcome first = run("demo --config " + tiny_config() + " --steps 20 --output " + saved + size);
    ASSERT_EQ(first.exit_code, 0) << first.output;
    const auto loss_after = [](const std::string& output, const std::string& label) {
        const auto at = output.find(label);
        EXPECT_NE(at, std::string::npos) << output;
        return std::stod(output.substr(at + label.size()));
    };
    const double before = loss_after(first.output, "held-out loss before:");
    const double after = loss_after(first.output, "held-out loss after:");
    EXPECT_LT(after, before - 0.1);

    const Outcome second = run("demo --model " + saved + " --steps 1" + size);
    ASSERT_EQ(second.exit_code, 0) << second.output;
    EXPECT_NEAR(loss_after(second.output, "held-out loss before:"), after, 1e-3);
}

TEST_F(CommandLine, DryRunPrintsThePlanAndStops) {
    const Outcome outcome = run("demo --dry_run" + config + data);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_NE(outcome.output.find("optimizer moments"), std::string::npos);
    EXPECT_EQ(outcome.output.find("step"), std::string::npos);
}

}  // namespace
}  // namespace drover
