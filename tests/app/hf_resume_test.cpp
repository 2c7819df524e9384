#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "app/checkpoint_runs.h"
#include "core/json_text.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Runs of transformers' Trainer that are resumed in the middle.
class HfResume : public test::CheckpointRuns, public ::testing::WithParamInterface<std::string> {
  protected:
    /// With a validation file, no part of the training file is held back.
    test::Outcome resume(const fs::path& golden, const std::string& more, fs::path model = {}) const {
        const Json run = read_json_file(golden / "whole_run.json");
        if (model.empty()) model = golden / "checkpoint-4";
        std::string words = fmt::format(
            "run_clm --config_name '{}' --tokenizer_name '{}' --train_file '{}' --do_train --block_size {} "
            "--validation_file '{}' --disable_tqdm yes --output_dir '{}' {}",
            model.string(), (golden.parent_path() / "tokenizer").string(),
            (golden.parent_path() / "train.txt").string(), run.at("block_size").get<int>(),
            (golden.parent_path() / "train.txt").string(), (folder_ / "out").string(), more);
        for (const auto& [name, value] : run.at("settings").items())
            words +=
                fmt::format(" --{} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
        return test::run_in(folder_.path().string(), words);
    }
    void expect_their_losses(const fs::path& golden, const test::Outcome& outcome) const;
};

void HfResume::expect_their_losses(const fs::path& golden, const test::Outcome& outcome) const {
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("Continuing training from global step 4"), std::string::npos)
        << outcome.output;

    const Json expected = read_json_file(golden / "whole_run.json").at("log_history");
    const Json state = read_json_file(folder_ / "out/trainer_state.json");
    int compared = 0;
    for (const Json& record : state.at("log_history"))
        for (const Json& wanted : expected) {
            if (!record.contains("loss") || !wanted.contains("loss") ||
                record.at("step") != wanted.at("step"))
                continue;
            ++compared;
            EXPECT_EQ(record.at("learning_rate"), wanted.at("learning_rate"));
            EXPECT_NEAR(record.at("loss").get<double>(), wanted.at("loss").get<double>(), 1e-4) << record;
            EXPECT_NEAR(record.at("grad_norm").get<double>() / wanted.at("grad_norm").get<double>(), 1, 1e-3)
                << record;
        }
    EXPECT_EQ(compared, 8);
    // The next checkpoint is one of ours.
    EXPECT_EQ(find_damage(checkpoint("out", 8)), std::nullopt);
}

TEST_P(HfResume, HasTheNextLossesOfTheirRun) {
    const fs::path golden = test::golden_path("trainer_checkpoint") / GetParam();
    fs::create_directories(folder_ / "out");
    fs::copy(golden / "checkpoint-4", checkpoint("out", 4), fs::copy_options::recursive);
    expect_their_losses(golden, resume(golden, ""));
}

/// Adapters of PEFT that the Trainer trained: theirs and their optimizer's state are read.
TEST_F(HfResume, ContinuesAdaptersOfPeft) {
    const auto continued = [&](const std::string& name, const std::string& base, const std::string& flags) {
        SCOPED_TRACE(name);
        const fs::path golden = test::golden_path("trainer_checkpoint") / name,
                       model = test::golden_path("generate") / base;
        fs::remove_all(folder_ / "out");
        fs::create_directories(folder_ / "out");
        fs::copy(golden / "checkpoint-4", checkpoint("out", 4), fs::copy_options::recursive);
        const std::string adapters = fmt::format(
            "--model_name_or_path '{}' --dtype float32 --use_peft --lora_r 4 --lora_alpha 8 --lora_dropout 0 "
            "{}",
            model.string(), flags);
        expect_their_losses(golden, resume(golden, adapters, model));
    };
    continued("llama_lora", "llama",
              "--lora_target_modules embed_tokens q_proj down_proj lm_head --lora_modules_to_save norm");
    continued("tied_dora", "llama_tied", "--lora_target_modules all-linear --use_dora");
}

INSTANTIATE_TEST_SUITE_P(Golden, HfResume,
                         ::testing::Values("llama_adamw", "llama_adafactor", "mixtral_adamw", "mistral_adamw",
                                           "qwen2_adamw", "qwen3_adafactor"));

TEST_F(HfResume, NeedsNoConfigInTheCheckpointWhereOneIsNamed) {
    const fs::path golden = test::golden_path("trainer_checkpoint/llama_adamw");
    fs::create_directories(folder_ / "out");
    fs::copy(golden / "checkpoint-4", checkpoint("out", 4), fs::copy_options::recursive);
    fs::remove(checkpoint("out", 4) / "config.json");
    const test::Outcome outcome = resume(golden, "");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("Continuing training from global step 4"), std::string::npos)
        << outcome.output;
}

TEST_F(HfResume, NamesADamagedOptimizer) {
    const fs::path golden = test::golden_path("trainer_checkpoint/llama_adamw");
    fs::create_directories(folder_ / "out");
    fs::copy(golden / "checkpoint-4", checkpoint("out", 4), fs::copy_options::recursive);
    const fs::path file = checkpoint("out", 4) / "optimizer.pt";
    fs::resize_file(file, fs::file_size(file) / 2);
    const test::Outcome outcome = resume(golden, "");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.output.find("optimizer.pt"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("none that a run can resume from"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace drover
