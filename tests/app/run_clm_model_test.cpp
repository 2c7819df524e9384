#include <fmt/format.h>

#include <fstream>
#include <regex>

#include "app/checkpoint_runs.h"
#include "core/json_text.h"
#include "io/safetensors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// How flags affect the model that a run trains: its sizes, number formats and memory.
class RunClmModel : public test::CheckpointRuns {
  protected:
    /// A model of one layer in bfloat16.
    static std::string saved() { return test::golden_path("run_clm/saved").string(); }

    /// A run that names a model takes its config from there.
    test::Outcome train(const std::string& output, const std::string& more) const {
        std::string line = words(output, more);
        if (more.find("--model_name_or_path") != std::string::npos)
            line = std::regex_replace(line, std::regex(" --config_name '[^']*'"), "");
        return test::run_in(folder_.path().string(), line);
    }
    test::Outcome short_run(const std::string& output, const std::string& more) const {
        test::Outcome outcome = train(output, "--max_steps 2 --save_strategy no " + more);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome;
    }
    Json config(const std::string& output) const { return read_json_file(folder_ / output / "config.json"); }
    std::string weights(const std::string& output) const {
        return read_text_file(folder_ / output / "model.safetensors");
    }
    /// A copy of the tests' config with changed values, as a file.
    std::string changed_config(const std::string& name, const Json& changes) const {
        Json config = read_json_file(test::golden_path("run_clm/configs/llama.json"));
        config.update(changes);
        const fs::path file = folder_ / name;
        std::ofstream(file) << config;
        return file.string();
    }
    static bool warns(const test::Outcome& outcome) {
        return outcome.output.find("WARNING: most updates will be lost") != std::string::npos;
    }
};

TEST_F(RunClmModel, SizesOfTheCommandLineReplaceTheConfigs) {
    short_run("by_flags", "--num_layer 1 --hidden_size 48");
    short_run("by_file",
              "--config_name " + changed_config("c.json", {{"num_hidden_layers", 1}, {"hidden_size", 48}}));
    EXPECT_EQ(config("by_flags"), config("by_file"));
    EXPECT_EQ(config("by_flags").at("head_dim"), 12);
    EXPECT_EQ(config("by_flags").at("intermediate_size"), 48);
    EXPECT_EQ(weights("by_flags"), weights("by_file"));

    // A head_dim equal to the derived value is recomputed; any other is kept.
    short_run("wider", "--hidden_size 64 --config_name " + changed_config("d.json", {{"head_dim", 8}}));
    EXPECT_EQ(config("wider").at("head_dim"), 16);
    short_run("own", "--hidden_size 64 --config_name " + changed_config("e.json", {{"head_dim", 6}}));
    EXPECT_EQ(config("own").at("head_dim"), 6);

    const test::Outcome odd = train("odd", "--hidden_size 50");
    EXPECT_EQ(odd.exit_code, 1);
    EXPECT_NE(odd.output.find("num_attention_heads"), std::string::npos) << odd.output;
}

TEST_F(RunClmModel, OfLoadedWeightsTheFirstLayersAreTaken) {
    short_run("two", "--learning_rate 0");
    const std::string two = "--model_name_or_path two --learning_rate 0 ";
    short_run("one", two + "--num_layer 1 --hidden_size 32");
    short_run("three", two + "--num_layer 3");
    EXPECT_EQ(config("one").at("num_hidden_layers"), 1);
    EXPECT_EQ(config("three").at("num_hidden_layers"), 3);
    const SafetensorsFile before(folder_ / "two/model.safetensors");
    for (const char* output : {"one", "three"}) {
        const SafetensorsFile after(folder_ / output / "model.safetensors");
        for (const auto& entry : after.header().entries) {
            const bool is_new = entry.name.starts_with("model.layers.2.");
            EXPECT_EQ(before.find(entry.name) == nullptr, is_new) << entry.name;
            if (!is_new) {
                EXPECT_EQ(test::values(after.tensor(entry)), test::values(before.tensor(entry.name)))
                    << entry.name;
            }
        }
    }
    const test::Outcome wide = train("wide", two + "--hidden_size 64");
    EXPECT_EQ(wide.exit_code, 2);
    EXPECT_NE(wide.output.find("--hidden_size is 64, but the weights of two are 32 wide"), std::string::npos)
        << wide.output;
    EXPECT_FALSE(fs::exists(folder_ / "wide/model.safetensors"));
}

TEST_F(RunClmModel, TheFirstBlocksAloneAreRecomputed) {
    const auto memory = [&](const std::string& output, const std::string& more) {
        const std::string text =
            short_run(output, "--num_layer 4 --block_size 128 --per_device_train_batch_size 4 " + more)
                .output;
        std::smatch found;
        EXPECT_TRUE(std::regex_search(text, found, std::regex("\n  total +([0-9.]+) MiB"))) << text;
        return std::stod(found[1]);
    };
    const double kept = memory("kept", ""), first = memory("first", "--recompute full --recompute_blocks 2"),
                 all = memory("all", "--recompute full");
    EXPECT_LT(first, kept);
    EXPECT_LT(all, first);
    EXPECT_EQ(weights("first"), weights("kept"));
    EXPECT_EQ(weights("all"), weights("kept"));
}

TEST_F(RunClmModel, UpdatesThatBfloat16LosesAreAnnounced) {
    const std::string bf16 = "--model_name_or_path " + saved() + " --bf16 --max_steps 1 ";
    const std::string at_start = short_run("lost", bf16 + "--learning_rate 1e-4").output;
    std::smatch said;
    ASSERT_TRUE(std::regex_search(
        at_start, said,
        std::regex(
            "learning rate, 0\\.0001, the first update is too small to change (\\d+) % of (\\S+)\\. ")))
        << at_start;
    EXPECT_NE(at_start.find("--master_weights yes"), std::string::npos);
    EXPECT_NE(at_start.find("--stochastic_rounding"), std::string::npos);

    // This is what actually happens.
    const SafetensorsFile before(fs::path(saved()) / "model.safetensors"),
        after(folder_ / "lost/model.safetensors");
    const std::vector<double> old_values = test::values(before.tensor(said[2].str())),
                              new_values = test::values(after.tensor(said[2].str()));
    double unchanged = 0;
    for (std::size_t i = 0; i < old_values.size(); ++i) unchanged += old_values[i] == new_values[i];
    EXPECT_NEAR(100 * unchanged / static_cast<double>(old_values.size()), std::stod(said[1]), 5);

    for (const char* remedy :
         {"--learning_rate 1e-4 --master_weights yes", "--learning_rate 1e-4 --stochastic_rounding",
          "--learning_rate 0.5", "--learning_rate 1e-4 --dtype float32",
          "--learning_rate 1e-4 --hf_compat 4.57", "--learning_rate 0"})
        EXPECT_FALSE(warns(short_run("well", bf16 + remedy + " --overwrite_output_dir"))) << remedy;
    EXPECT_TRUE(warns(short_run("drawn", "--max_steps 1 --learning_rate 1e-4 --config_name " +
                                             changed_config("bf16.json", {{"torch_dtype", "bfloat16"}}))));
}

TEST_F(RunClmModel, OlderReleasesTakeFloat32WhereNothingIsSaid) {
    const std::string loaded = "--model_name_or_path " + saved() + " ",
                      drawn = "--config_name " + changed_config("bf16.json", {{"dtype", "bfloat16"}}) + " ";
    struct Case {
        std::string flags, dtype;
    };
    for (const Case& one :
         {Case{loaded, "bfloat16"}, Case{loaded + "--hf_compat 4.57", "float32"},
          Case{loaded + "--hf_compat 4.43", "float32"}, Case{drawn, "bfloat16"},
          Case{drawn + "--hf_compat 4.57", "bfloat16"}, Case{drawn + "--hf_compat 4.43", "float32"},
          Case{loaded + "--hf_compat 4.57 --dtype auto", "bfloat16"}}) {
        short_run("out", one.flags + " --max_steps 1 --overwrite_output_dir");
        EXPECT_EQ(config("out").at("dtype"), one.dtype) << one.flags;
    }
    // Another effect of such a release: the divisor of the loss.
    short_run("by_release", "--hf_compat 4.57");
    short_run("by_denominator", "--loss_denominator hf457");
    EXPECT_EQ(test::timeless_history(folder_ / "by_release/trainer_state.json"),
              test::timeless_history(folder_ / "by_denominator/trainer_state.json"));
    EXPECT_EQ(weights("by_release"), weights("by_denominator"));
}

TEST_F(RunClmModel, AFolderForTensorBoardGetsItsFile) {
    const auto board = [&](const std::string& folder) {
        std::string all;
        std::error_code absent;
        for (const auto& entry : fs::directory_iterator(folder_ / folder, absent))
            all += read_text_file(entry.path());
        return all;
    };
    short_run("out", "--logging_steps 1 --tb_dir board");
    EXPECT_NE(board("board").find("train/loss"), std::string::npos);
    short_run("quiet", "--logging_steps 1 --tb_dir nothing --report_to none");
    EXPECT_EQ(board("nothing"), "");
}

/// The bytes of "1.50 GiB" in the first group.
double bytes_in(const std::string& text, const std::string& pattern) {
    std::smatch found;
    if (!std::regex_search(text, found, std::regex(pattern))) return 0;
    double bytes = std::stod(found[1]);
    for (const char* unit : {"KiB", "MiB", "GiB", "TiB"}) {
        bytes *= 1024;
        if (found[2] == unit) return bytes;
    }
    return 0;
}

TEST_F(RunClmModel, FindsTheLargestBatchThatFits) {
    const std::string large = "--per_device_train_batch_size 256 --max_steps 1 --save_strategy no ";
    const std::string refusal = train("none", large + "--memory_fraction 1e-9").output;
    const std::string amount = "([0-9.]+) ([KMGT]iB)";
    const double needed = bytes_in(refusal, "The run needs " + amount),
                 device = bytes_in(refusal, "of the " + amount + " that");
    ASSERT_GT(needed, 0) << refusal;
    ASSERT_GT(device, 0) << refusal;
    const std::string half = fmt::format("--memory_fraction {} ", needed / 2 / device);
    EXPECT_EQ(train("none", large + half).exit_code, 1);

    const test::Outcome found = train("found", large + half + "--auto_find_batch_size");
    ASSERT_EQ(found.exit_code, 0) << found.output;
    std::smatch taken;
    ASSERT_TRUE(std::regex_search(
        found.output, taken,
        std::regex("A batch of 256 rows does not fit into memory. --auto_find_batch_size takes ([0-9]+)")))
        << found.output;
    const std::int64_t rows = std::stoll(taken[1]);
    EXPECT_GT(rows, 8);
    EXPECT_EQ(read_json_file(folder_ / "found/trainer_state.json").at("train_batch_size"), rows);
    const auto with_rows = [&](std::int64_t count) {
        return train("planned", half + fmt::format("--dry_run --per_device_train_batch_size {}", count));
    };
    EXPECT_EQ(with_rows(rows).exit_code, 0);
    EXPECT_EQ(with_rows(rows + 1).exit_code, 1);
}

}  // namespace
}  // namespace drover
