#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "app/checkpoint_runs.h"
#include "core/json_text.h"
#include "io/hf_optimizer_state.h"
#include "io/model_folder.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Runs of other programs that are converted in the middle, and continued here.
class ConvertResume : public test::CheckpointRuns, public ::testing::WithParamInterface<std::string> {
  protected:
    test::Outcome convert(const fs::path& input, const std::string& more) const {
        return test::run_in(
            folder_.path().string(),
            fmt::format("convert --input_dir '{}' --output_dir '{}' --output_format resumable {}",
                        input.string(), (folder_ / "out").string(), more));
    }

    /// Continues the run whose settings and losses are in `golden`; returns the number of losses that were
    /// compared.
    int resume_and_compare(const fs::path& golden, double tolerance) const {
        const Json run = read_json_file(golden);
        const fs::path data = test::golden_path("trainer_checkpoint");
        std::string words = fmt::format(
            "run_clm --config_name '{}' --tokenizer_name '{}' --train_file '{}' --do_train --block_size {} "
            "--validation_file '{}' --disable_tqdm yes --output_dir '{}'",
            checkpoint("out", 4).string(), (data / "tokenizer").string(), (data / "train.txt").string(),
            run.at("block_size").get<int>(), (data / "train.txt").string(), (folder_ / "out").string());
        for (const auto& [name, value] : run.at("settings").items())
            words +=
                fmt::format(" --{} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
        const test::Outcome outcome = test::run_in(folder_.path().string(), words);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_NE(outcome.output.find("Continuing training from global step 4"), std::string::npos)
            << outcome.output;
        EXPECT_EQ(outcome.output.find("Warning"), std::string::npos) << outcome.output;
        const Json state = read_json_file(folder_ / "out/trainer_state.json");
        int compared = 0;
        for (const Json& record : state.at("log_history"))
            for (const Json& wanted : run.at("log_history")) {
                if (!record.contains("loss") || !wanted.contains("loss") || record.at("step") < 5 ||
                    record.at("step") != wanted.at("step"))
                    continue;
                ++compared;
                EXPECT_EQ(record.at("learning_rate"), wanted.at("learning_rate"));
                EXPECT_NEAR(record.at("loss").get<double>(), wanted.at("loss").get<double>(), tolerance)
                    << record;
                EXPECT_NEAR(record.at("grad_norm").get<double>() / wanted.at("grad_norm").get<double>(), 1,
                            10 * tolerance)
                    << record;
            }
        return compared;
    }
};

TEST_P(ConvertResume, HasTheNextLossesOfTheRunThatWasConverted) {
    const fs::path golden = test::golden_path("sharded_runs") / GetParam();
    const test::Outcome outcome = convert(golden / "checkpoint-4", "");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(find_damage(checkpoint("out", 4)), std::nullopt);
    // DeepSpeed computed in bfloat16 where its name says so; here the float32 copies continue.
    EXPECT_EQ(resume_and_compare(golden / "whole_run.json", GetParam().ends_with("bf16") ? 0.02 : 1e-4), 4);
}

INSTANTIATE_TEST_SUITE_P(Golden, ConvertResume,
                         ::testing::Values("zero1_bf16", "zero2", "zero3", "zero3_mixtral", "fsdp_sharded",
                                           "fsdp_mixtral", "fsdp_full"));

class ConvertNxdResume : public ConvertResume {};

TEST_P(ConvertNxdResume, HasTheNextLossesAndTheStateOfTheRunThatWasCut) {
    const fs::path golden = test::golden_path("nxd_runs") / GetParam();
    const Json cut = read_json_file(golden / "case.json");
    const fs::path run = test::golden_path("trainer_checkpoint") / cut.at("run").get<std::string>();
    const test::Outcome outcome = convert(
        golden / "step_4", fmt::format("--convert_to_full_state --config '{}' --kv_size_multiplier {}",
                                       (run / "checkpoint-4").string(), cut.value("kv_size_multiplier", 1)));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    // Transformers has Mixtral's experts in two tensors; those are judged by the losses alone.
    const Json names = read_json_file(run / "whole_run.json").at("parameters");
    const HfOptimizerState original(run / "checkpoint-4/optimizer.pt");
    const SafetensorsFile states(checkpoint("out", 4) / "optimizer.safetensors");
    int compared = 0;
    for (std::size_t i = 0; i < names.size(); ++i)
        for (const std::string kind : {"exp_avg", "exp_avg_sq"}) {
            const std::string name = kind + "/" + names[i].get<std::string>();
            if (name.find(".mlp.") != std::string::npos && states.find(name) == nullptr) continue;
            ASSERT_NE(states.find(name), nullptr) << name;
            const Tensor found = states.tensor(name);
            const Tensor expected = original.tensor(i, kind, found.numel());
            EXPECT_EQ(found.dtype(), expected.dtype());
            EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), found.bytes()), 0) << name;
            ++compared;
        }
    EXPECT_GT(compared, 15);
    EXPECT_EQ(resume_and_compare(run / "whole_run.json", 1e-4), 4);
}

INSTANTIATE_TEST_SUITE_P(Golden, ConvertNxdResume,
                         ::testing::Values("zero1", "zero1_fused", "whole", "mixtral_xser"));

TEST_F(ConvertResume, WritesNothingWhenItIsRefused) {
    const fs::path golden = test::golden_path("sharded_runs");
    const auto expect_refused = [&](const fs::path& input, const std::string& more, int exit_code,
                                    const std::string& part) {
        const test::Outcome outcome = convert(input, more);
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
        EXPECT_FALSE(fs::exists(checkpoint("out", 4)));
    };
    expect_refused(golden / "zero2/checkpoint-4", "--dtype bfloat16", 2, "leave --dtype out");
    expect_refused(golden / "zero3_frozen/checkpoint-4", "", 1, "has no exp_avg of lm_head.weight");
    expect_refused(test::golden_path("generate/llama"), "", 1, "no state of an optimizer");
    expect_refused(golden / "zero2/checkpoint-4", "--n_layers 3", 1, "2 layers");
    // The Trainer's file is of another step.
    fs::copy(golden / "zero2/checkpoint-4", folder_ / "other", fs::copy_options::recursive);
    std::string state = read_text_file(folder_ / "other/trainer_state.json");
    const auto at = state.find("\"global_step\": 4");
    ASSERT_NE(at, std::string::npos);
    state[at + 15] = '5';
    write_file_atomically(folder_ / "other/trainer_state.json", state);
    expect_refused(folder_ / "other", "", 1, "trainer_state.json is of step 5");
}

TEST_F(ConvertResume, WeightsAloneAreAModelFolder) {
    const fs::path input = test::golden_path("sharded_runs/zero3/checkpoint-4");
    const test::Outcome outcome = test::run("convert --output_format safetensors --input_dir " +
                                            input.string() + " --output_dir " + (folder_ / "model").string());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(fs::exists(folder_ / "model/config.json"));
    const ModelWeights weights(folder_ / "model");
    EXPECT_EQ(weights.entry("lm_head.weight"), nullptr);  // it is the embedding
    EXPECT_EQ(weights.entry("model.embed_tokens.weight")->dtype, FileDType::F32);
}

}  // namespace
}  // namespace drover
