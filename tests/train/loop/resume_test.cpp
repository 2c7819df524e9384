#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>

#include "core/python_json.h"
#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/callbacks/early_stop.h"
#include "train/dealt_data.h"
#include "train/engine/engine_model.h"
#include "train/engine/train_engine.h"
#include "train/single_mesh.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* llama =
    R"({"vocab_size": 67, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": true})";
/// Its checkpoint is larger than the smallest buffer, and so are its embeddings.
constexpr const char* wide =
    R"({"vocab_size": 4200, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 4})";
constexpr const char* tied =
    R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "tie_word_embeddings": true})";
constexpr const char* mixtral =
    R"({"model_type": "mixtral", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
        "output_router_logits": true, "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.1})";

Precision stochastic() {
    Precision precision = Precision::pure_bf16();
    precision.stochastic_rounding = true;
    return precision;
}

Precision wide_moments() {
    Precision precision = Precision::pure_bf16();
    precision.moments = DType::f32;
    return precision;
}

/// A run, and the step after which it is stopped. An epoch has seven batches.
struct ResumeCase {
    const char* name;
    const char* config = llama;
    std::string optimizer = "adamw_torch";
    Precision precision = Precision::fp32();
    std::int64_t saved_step = 3;
    std::int64_t accumulation = 1;
    double momentum = 0;
    double neftune_alpha = 0;
    double label_smoothing = 0;
    std::optional<LossScaling> loss_scaling{};
    std::uint64_t buffer_bytes = std::uint64_t{1} << 30;
    std::uint64_t max_shard_bytes = 5'000'000'000;
    double logging_steps = 2;
    const char* schedule = "cosine";
    SampleOrder order = SampleOrder::shuffled;
    bool evaluates = false;
    std::int64_t added_tokens = 0;
    bool offloaded = false;
};

std::ostream& operator<<(std::ostream& out, const ResumeCase& resume_case) {
    return out << resume_case.name;
}

const std::vector<ResumeCase>& resume_cases() {
    static const std::vector<ResumeCase> cases = {
        {.name = "adamw_fp32"},
        {.name = "adamw_fp32_first_step", .saved_step = 1},
        {.name = "adamw_fp32_end_of_epoch", .saved_step = 7},
        {.name = "adamw_fp32_epoch_two", .saved_step = 9},
        {.name = "adamw_accumulation", .saved_step = 2, .accumulation = 2},
        {.name = "adamw_accumulation_epoch_two", .saved_step = 5, .accumulation = 2},
        {.name = "adamw_accumulation_end_of_epoch", .saved_step = 4, .accumulation = 2},
        {.name = "adamw_between_records", .logging_steps = 5},
        {.name = "adamw_bf16", .precision = Precision::pure_bf16()},
        {.name = "adamw_bf16_wide_moments", .precision = wide_moments()},
        {.name = "adamw_bf16_master", .precision = Precision::with_master(DType::bf16), .saved_step = 9},
        {.name = "adamw_stochastic_rounding", .precision = stochastic()},
        {.name = "adamw_tied", .config = tied},
        {.name = "adamw_sequential", .saved_step = 9, .order = SampleOrder::sequential},
        {.name = "adamw_neftune", .neftune_alpha = 5},
        {.name = "adamw_label_smoothing", .label_smoothing = 0.1},
        {.name = "adamw_larger_vocabulary", .added_tokens = 3},
        {.name = "adamw_streamed_through_a_small_buffer", .config = wide, .buffer_bytes = 0},
        {.name = "adamw_shards", .max_shard_bytes = 9000},
        {.name = "adamw_loss_scaler_skips",
         .loss_scaling = LossScaling{.initial = 3e38f, .growth_interval = 3}},
        {.name = "adamw_plateau", .saved_step = 6, .schedule = "reduce_lr_on_plateau", .evaluates = true},
        {.name = "adamw_offloaded", .precision = Precision::with_master(DType::bf16), .offloaded = true},
        {.name = "adafactor_fp32", .optimizer = "adafactor"},
        {.name = "adafactor_bf16_master",
         .optimizer = "adafactor",
         .precision = Precision::with_master(DType::bf16)},
        {.name = "adafactor_stochastic_rounding", .optimizer = "adafactor", .precision = stochastic()},
        {.name = "sgd", .optimizer = "sgd"},
        {.name = "sgd_momentum", .optimizer = "sgd", .momentum = 0.9},
        {.name = "adagrad", .optimizer = "adagrad"},
        {.name = "rmsprop", .optimizer = "rmsprop", .precision = Precision::pure_bf16()},
        {.name = "mixtral_adamw_jitter", .config = mixtral, .saved_step = 9},
        {.name = "mixtral_bf16_master", .config = mixtral, .precision = Precision::with_master(DType::bf16)},
        {.name = "mixtral_adafactor", .config = mixtral, .optimizer = "adafactor", .accumulation = 2},
        {.name = "mixtral_stochastic_rounding", .config = mixtral, .precision = stochastic()},
    };
    return cases;
}

constexpr std::int64_t tokens_per_row = 12;

class Resume : public testing::TestWithParam<ResumeCase> {
  protected:
    /// Trains to the end, from the beginning or from a checkpoint, with a seed for the weights, which must
    /// not affect a resumed run.
    Json run(const fs::path& output, const std::optional<fs::path>& checkpoint, std::uint64_t weights_seed) {
        const ResumeCase& chosen = GetParam();
        ModelConfig config = ModelConfig::parse(chosen.config, chosen.name);
        if (chosen.added_tokens > 0) config.resize_vocabulary(config.vocab_size + chosen.added_tokens);
        OptimizerSettings optimizer = OptimizerSettings::named(chosen.optimizer, 0.1);
        optimizer.sgd.momentum = chosen.momentum;
        const auto backend = test::make_test_backend();
        TrainEngine engine(config,
                           {.model = {.precision = chosen.precision,
                                      .recompute = {},
                                      .rows = 2,
                                      .row_length = tokens_per_row,
                                      .label_smoothing = chosen.label_smoothing,
                                      .neftune_alpha = chosen.neftune_alpha},
                            .optimizer = optimizer,
                            .offload_optimizer = chosen.offloaded,
                            .loss_scaling = chosen.loss_scaling},
                           *backend, test::single_mesh());
        engine.allocate();
        engine.initialize_weights(weights_seed);
        EngineModel model(engine, config, *backend, test::single_mesh(), {},
                          {.buffer_bytes = chosen.buffer_bytes, .max_shard_bytes = chosen.max_shard_bytes});

        TrainerSettings settings{.output_dir = output,
                                 .max_steps = 12,
                                 .per_device_train_batch_size = 2,
                                 .per_device_eval_batch_size = 2,
                                 .gradient_accumulation_steps = chosen.accumulation,
                                 .learning_rate = chosen.optimizer == "sgd" ? 0.1 : 3e-3,
                                 .lr_scheduler_type = chosen.schedule,
                                 .warmup_steps = chosen.evaluates ? 0.0 : 2.0,
                                 .logging_steps = chosen.logging_steps,
                                 .save_steps = static_cast<double>(chosen.saved_step)};
        if (chosen.evaluates) {
            settings.lr_scheduler_kwargs = {{"patience", 0}, {"threshold", 0.5}};
            settings.eval_strategy = IntervalStrategy::steps;
            settings.eval_steps = 2.0;
            settings.early_stopping_patience = 9;
        }
        settings.finish();
        const auto vocab = static_cast<std::uint32_t>(config.vocab_size);
        SamplerOptions order = training_sampler(settings);
        order.order = chosen.order;
        test::DealtData training(order, 14, StreamEnd::never, tokens_per_row, vocab);
        test::DealtData evaluation(evaluation_sampler(settings), 5, StreamEnd::after_one_epoch,
                                   tokens_per_row, vocab);
        Trainer trainer(settings, model, &training, &evaluation,
                        {.seconds = [](const Stopwatch&) { return 2.0; }});
        EarlyStop early_stop(9, 0);
        if (chosen.evaluates) trainer.add_callback(early_stop);
        if (!checkpoint) {
            trainer.train();
        } else {
            const fs::path state_file = *checkpoint / "trainer_state.json";
            const TrainerState state = TrainerState::parse(read_text_file(state_file), state_file.string());
            const std::optional<LoopState> loop = model.resume(*checkpoint);
            trainer.train(&state, &*loop);
        }
        return trainer.state().log_history;
    }

    test::TemporaryFolder folder_;
};

/// Everything that a resumed run writes equals what the uninterrupted run wrote.
TEST_P(Resume, IsBitForBitTheRunThatWasNotStopped) {
    omp_set_num_threads(1);  // the model is too small for more
    const Json whole = run(folder_ / "out", std::nullopt, 42);
    // Both runs write to the same path, since it is part of the files.
    fs::rename(folder_ / "out", folder_ / "whole");
    const fs::path from = folder_ / "whole" / fmt::format("checkpoint-{}", GetParam().saved_step);
    ASSERT_EQ(find_damage(from), std::nullopt);
    const Json resumed = run(folder_ / "out", from, 1);
    EXPECT_EQ(python_json(resumed, 2), python_json(whole, 2));

    const fs::path expected = folder_ / "whole/checkpoint-12", actual = folder_ / "out/checkpoint-12";
    const CheckpointManifest wanted = CheckpointManifest::read(expected);
    const CheckpointManifest got = CheckpointManifest::read(actual);
    EXPECT_EQ(got.state, wanted.state);
    EXPECT_TRUE(wanted.files.contains("optimizer.safetensors"));
    ASSERT_EQ(got.files.size(), wanted.files.size());
    for (const auto& [name, digest] : wanted.files)
        EXPECT_TRUE(got.files.contains(name) && got.files.at(name) == digest) << name << " differs";
    // Training continued after the checkpoint.
    EXPECT_NE(CheckpointManifest::read(from).files, got.files);
}

INSTANTIATE_TEST_SUITE_P(Settings, Resume, testing::ValuesIn(resume_cases()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace drover
