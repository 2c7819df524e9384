#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/token_blocks.h"
#include "core/stopwatch.h"
#include "optim/schedule.h"
#include "train/train_engine.h"

namespace drover {
namespace {

struct DemoOptions {
    std::string config;
    std::string data;
    std::string model;
    std::string output;
    std::string dtype = "float32";
    std::string recompute = "none";
    std::int64_t steps = 100;
    std::int64_t batch = 8;
    std::int64_t accumulation = 1;
    std::int64_t block_size = 256;
    std::uint64_t seed = 42;
    double learning_rate = 2e-3;
    bool dry_run = false;
};

Precision precision_named(const std::string& name) {
    switch (floating_dtype_from_name(name, "--dtype")) {
        case DType::f32:
            return Precision::fp32();
        case DType::bf16:
            return Precision::with_master(DType::bf16);
        default:
            throw UsageError(fmt::format("--dtype is \"{}\".", name), "Use float32 or bfloat16.");
    }
}

ModelConfig read_config(const DemoOptions& options) {
    if (options.config.empty() && options.model.empty())
        throw UsageError("Neither --config nor --model is given.", "Name a config.json, or a model folder.");
    return ModelConfig::from_path(options.config.empty() ? options.model : options.config);
}

void prepare_weights(TrainEngine& engine, const DemoOptions& options) {
    if (options.model.empty()) {
        engine.initialize_weights(options.seed);
        return;
    }
    const LoadReport report = engine.load_weights(options.model, options.seed);
    if (const std::string text = report.text(); !text.empty()) fmt::print("{}\n", text);
}

/// Mean loss over the held-out blocks.
double held_out_loss(TrainEngine& engine, const TokenBlocks& blocks, std::int64_t batch) {
    EvaluationResult total;
    for (std::int64_t first = 0; first < blocks.held_out(); first += batch) {
        const EvaluationResult part = engine.evaluate(blocks.held_out_batch(first, batch));
        total.loss_sum += part.loss_sum;
        total.denominator += part.denominator;
    }
    return total.mean_loss();
}

void train(TrainEngine& engine, const TokenBlocks& blocks, const DemoOptions& options) {
    const Schedule schedule("cosine", options.learning_rate, options.steps / 10, options.steps);
    fmt::print("held-out loss before: {:.4f}\n", held_out_loss(engine, blocks, options.batch));
    const Stopwatch watch;
    const std::int64_t print_every = std::max<std::int64_t>(1, options.steps / 20);
    std::int64_t tokens = 0;
    for (std::int64_t step = 0; step < options.steps; ++step) {
        std::vector<TokenBatch> micro_batches;
        for (std::int64_t i = 0; i < options.accumulation; ++i)
            micro_batches.push_back(
                blocks.training_batch(step * options.accumulation + i, options.batch, options.seed));
        const StepResult result = engine.step(micro_batches, schedule.rate(step));
        for (const TokenBatch& micro : micro_batches) tokens += micro.tokens();
        if ((step + 1) % print_every == 0 || step == 0 || step + 1 == options.steps) {
            fmt::print(
                "step {:>4}/{}  loss {:.4f}  grad norm {:.3f}  learning rate {:.2e}  {:.0f} tokens/s\n",
                step + 1, options.steps, result.loss, result.gradient_norm, schedule.rate(step),
                static_cast<double>(tokens) / watch.seconds());
            std::fflush(stdout);
        }
    }
    fmt::print("held-out loss after:  {:.4f}\n", held_out_loss(engine, blocks, options.batch));
}

void run_demo(const DemoOptions& options) {
    const ModelConfig config = read_config(options);
    const TokenBlocks blocks(options.data, options.block_size, config.vocab_size);
    const std::unique_ptr<Backend> backend = make_cpu_backend();
    const Mesh mesh;
    TrainEngine engine(config,
                       {.model = {.precision = precision_named(options.dtype),
                                  .recompute = {recompute_from_name(options.recompute, "--recompute")},
                                  .rows = options.batch,
                                  .row_length = options.block_size},
                        .adamw = {.weight_decay = 0.1}},
                       *backend, mesh);
    fmt::print("{}; {:.2f} M parameters in {}; {} blocks of {} tokens for training, {} held out\nMemory:\n{}",
               backend->description(), static_cast<double>(engine.store().spec().parameter_count()) / 1e6,
               options.dtype, blocks.training(), options.block_size, blocks.held_out(),
               engine.memory_plan().table());
    if (options.dry_run) return;

    engine.allocate();
    prepare_weights(engine, options);
    train(engine, blocks, options);
    if (!options.output.empty()) {
        engine.save_weights(options.output);
        fmt::print("The model is in {}.\n", options.output);
    }
}

}  // namespace

void add_demo_command(CLI::App& app) {
    auto options = std::make_shared<DemoOptions>();
    CLI::App* command = app.add_subcommand("demo",
                                           "Trains a small Llama on token ids and prints the loss falling.\n"
                                           "Example: drover demo --config examples/configs/llama-5m.json "
                                           "--data examples/data/tinyshakespeare/ids.safetensors");
    command->option_defaults()->always_capture_default();
    command->add_option("--config", options->config, "config.json of the model, or a folder that holds one");
    command->add_option("--model", options->model,
                        "start from the weights in this folder or .safetensors file");
    command->add_option("--data", options->data, "safetensors file with the token ids as `input_ids`")
        ->required();
    command->add_option("--output", options->output, "save the trained model in this folder");
    command->add_option("--dtype", options->dtype, "float32, or bfloat16 with a float32 master copy");
    command->add_option("--recompute", options->recompute, "none, selective, selective_mlp or full");
    command->add_option("--steps", options->steps, "number of updates")->check(CLI::Range(1, 1 << 30));
    command->add_option("--batch", options->batch, "rows per micro-batch")->check(CLI::Range(1, 1 << 20));
    command->add_option("--accumulation", options->accumulation, "micro-batches per update")
        ->check(CLI::Range(1, 1 << 20));
    command->add_option("--block_size", options->block_size, "tokens per row")->check(CLI::Range(2, 1 << 20));
    command->add_option("--seed", options->seed, "of the weights and of the data order");
    command->add_option("--learning_rate", options->learning_rate,
                        "highest rate; warms up, then falls as a cosine");
    command->add_flag("--dry_run", options->dry_run, "print the memory plan and stop");
    command->callback([options] { run_demo(*options); });
}

}  // namespace drover
