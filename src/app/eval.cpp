#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/commands.h"
#include "core/console.h"
#include "core/python_text.h"
#include "data/packing/token_file.h"
#include "run/choose_backend.h"
#include "run/engine_settings.h"
#include "run/model_source.h"
#include "run/token_source.h"
#include "train/engine/engine_model.h"
#include "train/engine/train_engine.h"
#include "train/loop/evaluation.h"

namespace drover {
namespace {

struct EvalOptions {
    std::string model, tokenizer, data, text_column, dtype = "auto", device = "auto";
    std::int64_t block_size = 0, batch_size = 8, max_samples = 0, threads = 0;
    bool json = false;
};

/// The settings of a run that only evaluates.
RunSettings eval_settings(const EvalOptions& options) {
    RunSettings settings;
    settings.do_eval = true;
    settings.model.model_name_or_path = options.model;
    settings.model.tokenizer_name = options.tokenizer;
    settings.data.validation_file = options.data;
    settings.data.text_column = options.text_column;
    if (options.block_size > 0) settings.data.block_size = options.block_size;
    if (options.max_samples > 0) settings.data.max_eval_samples = options.max_samples;
    // The file's rows are what is to be measured. Text is packed as in training; such a file is not.
    if (is_token_file(options.data) && TokenFile(options.data).rows().header().packing == Packing::none)
        settings.data.packing = Packing::none;
    settings.loop.per_device_eval_batch_size = options.batch_size;
    settings.loop.finish();
    settings.precision.weights_as_stored = options.dtype == "auto";
    if (options.dtype != "auto")
        settings.precision.weights = floating_dtype_from_name(options.dtype, "--dtype");
    settings.device.device = options.device;
    if (options.threads > 0) settings.device.threads = options.threads;
    settings.names = {.model = "--model", .tokenizer = "--tokenizer"};
    return settings;
}

/// A token file needs no tokenizer; if there is one, they must match.
ModelSource find_eval_model(const EvalOptions& options, const RunSettings& settings) {
    const std::filesystem::path weights = find_pretrained(options.model, settings.names.model);
    const bool has_tokenizer = !options.tokenizer.empty() ||
                               std::filesystem::exists(weights / "tokenizer.json") ||
                               std::filesystem::exists(weights / "tokenizer.model");
    if (!has_tokenizer && is_token_file(options.data))
        return {
            .config = ModelConfig::from_path(weights), .weights = weights, .generation = {}, .tokenizer = {}};
    ModelSource model = find_model_source(settings.model, settings.names);
    if (const std::int64_t rows = model.config.rows_before_resize; rows > 0)
        throw Error(fmt::format("The tokenizer has {} tokens, but the model's vocabulary only {}.",
                                model.config.vocab_size, rows),
                    "Name the tokenizer that belongs to this model with --tokenizer.");
    return model;
}

/// float16 becomes float32, since nothing is computed in float16 here.
std::optional<DType> computed_dtype(const ModelConfig& config) {
    if (config.dtype != DType::f16) return config.dtype;
    print_log(stderr, "Evaluating in float32: float16 is not computed with here.\n");
    return DType::f32;
}

void evaluate(const EvalOptions& options) {
    const RunSettings settings = eval_settings(options);
    const ModelSource source = find_eval_model(options, settings);
    const TokenSource tokens = find_tokens_together(Processes{}, settings, source, Messages("info"));
    const std::unique_ptr<Backend> backend = make_process_backend(settings.device, {});

    TrainEngineOptions engine_settings = engine_options(
        settings, chosen_precision(settings, computed_dtype(source.config), backend->device()));
    engine_settings.evaluation_only = true;
    engine_settings.model.recompute = {Recompute::full};  // keep nothing for a backward pass
    engine_settings.model.rows = settings.loop.per_device_eval_batch_size;
    engine_settings.model.row_length = std::max<std::int64_t>(tokens.row_length, 1);
    const Mesh mesh;
    TrainEngine engine(source.config, engine_settings, *backend, mesh);
    engine.allocate();
    if (const std::string text = engine.load_weights(source.weights, settings.loop.seed).text();
        !text.empty())
        print_log(stderr, "{}\n", text);
    EngineModel model(engine, source.config, *backend, mesh);
    TokenFileData data(*tokens.validation.rows,
                       {.sampler = evaluation_sampler(settings.loop),
                        .collator = {.pad_id = 0, .ignore_every_pad_id = false},
                        .max_samples = settings.data.max_eval_samples},
                       StreamEnd::after_one_epoch);
    const EvaluationSummary summary = evaluate_all(model, data, [](std::int64_t, std::int64_t) {});
    if (summary.targets == 0)
        throw Error(fmt::format("No row of {} has a token to predict.", options.data),
                    "Rows need at least two tokens.");
    const Json result = {{"loss", summary.loss},
                         {"perplexity", perplexity(summary.loss)},
                         {"accuracy", summary.accuracy},
                         {"samples", data.samples()}};
    if (options.json) {
        print_result("{}\n", python_json_line(result));
        return;
    }
    print_result("loss       {:.6f}\nperplexity {:.4f}\naccuracy   {:.4f}\nsamples    {}\n", summary.loss,
                 perplexity(summary.loss), summary.accuracy, data.samples());
}

}  // namespace

void add_eval_command(CLI::App& app) {
    auto options = std::make_shared<EvalOptions>();
    CLI::App* command = app.add_subcommand(
        "eval",
        "Measures a model on a text: loss, perplexity and accuracy, as run_clm's evaluation has them.\n"
        "Example: drover eval --model out --data held-out.txt --block_size 1024");
    command->option_defaults()->always_capture_default();
    constexpr std::int64_t largest_count = std::int64_t{1} << 30;
    command->add_option("--model", options->model, "model folder, or a repository in the Hugging Face cache")
        ->required();
    command
        ->add_option("--data", options->data,
                     "text, JSON or CSV file, a token file, or a folder with input_ids")
        ->required()
        ->check(CLI::ExistingPath);
    command->add_option("--tokenizer", options->tokenizer,
                        "folder or file of the tokenizer; that of the model when empty");
    command->add_option("--text_column", options->text_column,
                        "column of a JSON or CSV file; \"text\" or the first");
    command->add_option("--block_size", options->block_size, "tokens per row; 0: as run_clm chooses")
        ->check(CLI::Range(std::int64_t{0}, largest_count));
    command->add_option("--batch_size", options->batch_size, "rows per batch")
        ->check(CLI::Range(std::int64_t{1}, largest_count));
    command->add_option("--max_samples", options->max_samples, "only the first rows; 0: all")
        ->check(CLI::Range(std::int64_t{0}, largest_count));
    command->add_option("--dtype", options->dtype, "float32 or bfloat16; auto: the model's");
    command->add_option("--device", options->device, "auto takes a GPU when there is one")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
    command->add_option("--threads", options->threads, "threads of the CPU; 0: as many as OpenMP would take")
        ->check(CLI::Range(0, 4096));
    command->add_flag("--json", options->json, "print one JSON object");
    command->callback([options] { evaluate(*options); });
}

}  // namespace drover
