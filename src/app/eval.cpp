#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>

#include "app/commands.h"
#include "app/run_clm_sources.h"
#include "core/console.h"
#include "core/python_text.h"
#include "data/packing/token_file.h"
#include "run/choose_backend.h"
#include "run/run_clm_settings.h"
#include "train/engine/engine_model.h"
#include "train/loop/evaluation.h"

namespace drover {
namespace {

struct EvalOptions {
    std::string model, tokenizer, data, text_column, dtype = "auto", device = "auto";
    std::int64_t block_size = 0, batch_size = 8, max_samples = 0, threads = 0;
    bool json = false;
};

void say(const std::string& line) {
    print_log(stderr, "{}\n", line);
}

/// The same settings as a command line of run_clm, whose code finds and tokenizes the data.
RunArguments run_arguments(const EvalOptions& options) {
    std::vector<std::string> words = {"--do_eval",
                                      "--model_name_or_path",
                                      options.model,
                                      "--validation_file",
                                      options.data,
                                      "--per_device_eval_batch_size",
                                      std::to_string(options.batch_size),
                                      "--dtype",
                                      options.dtype};
    const auto add = [&](const char* flag, const std::string& value) {
        words.emplace_back(flag);
        words.push_back(value);
    };
    if (options.block_size > 0) add("--block_size", std::to_string(options.block_size));
    if (options.max_samples > 0) add("--max_eval_samples", std::to_string(options.max_samples));
    if (!options.tokenizer.empty()) add("--tokenizer_name", options.tokenizer);
    if (!options.text_column.empty()) add("--text_column", options.text_column);
    // Its rows are what is to be measured: text is packed as training packs it, such a file is not.
    if (is_token_file(options.data) && TokenFile(options.data).rows().header().packing == Packing::none)
        add("--packing", "none");
    return parse_run_arguments(words, {.environment = read_environment(), .args_file = {}});
}

/// A token file needs no tokenizer; where there is one, they must belong together.
ModelSource find_eval_model(const EvalOptions& options, const Arguments& arguments) {
    const std::filesystem::path weights = find_model(options.model, "--model", arguments);
    const bool has_tokenizer = !options.tokenizer.empty() ||
                               std::filesystem::exists(weights / "tokenizer.json") ||
                               std::filesystem::exists(weights / "tokenizer.model");
    if (!has_tokenizer && is_token_file(options.data))
        return {
            .config = ModelConfig::from_path(weights), .weights = weights, .generation = {}, .tokenizer = {}};
    ModelSource model = find_model_and_tokenizer(arguments);
    if (const std::int64_t rows = model.config.rows_before_resize; rows > 0)
        throw Error(fmt::format("The tokenizer has {} tokens, but the model's vocabulary only {}.",
                                model.config.vocab_size, rows),
                    "Name the tokenizer that belongs to this model with --tokenizer.");
    return model;
}

/// float16, in which nothing is computed here, becomes float32.
std::optional<DType> computed_dtype(const ModelConfig& config) {
    if (config.dtype != DType::f16) return config.dtype;
    say("Evaluating in float32: float16 is not computed with here.");
    return DType::f32;
}

/// What was said to a command line of run_clm, in the words of this one.
std::string own_words(std::string text) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 5> flags{{
        {"--validation_file", "--data"},
        {"--model_name_or_path", "--model"},
        {"--tokenizer_name", "--tokenizer"},
        {"--per_device_eval_batch_size", "--batch_size"},
        {"--max_eval_samples", "--max_samples"},
    }};
    for (const auto& [theirs, own] : flags)
        for (std::size_t at = text.find(theirs); at != std::string::npos; at = text.find(theirs, at))
            text.replace(at, theirs.size(), own);
    return text;
}

void evaluate(const EvalOptions& options) {
    if (options.threads > 0) omp_set_num_threads(static_cast<int>(options.threads));
    const RunArguments run = run_arguments(options);
    const Arguments& arguments = run.arguments;
    const ModelSource source = find_eval_model(options, arguments);
    const TokenSource tokens = find_tokens_together(RunProcesses{}, arguments, source, Messages("info"));
    const TrainerSettings settings = trainer_settings(arguments);
    const std::unique_ptr<Backend> backend = make_chosen_backend(options.device);

    TrainEngineOptions engine_settings =
        engine_options(run, chosen_precision(run, computed_dtype(source.config), backend->device()));
    engine_settings.evaluation_only = true;
    engine_settings.model.recompute = {Recompute::full};  // nothing is kept for a backward pass
    engine_settings.model.rows = settings.per_device_eval_batch_size;
    engine_settings.model.row_length = std::max<std::int64_t>(tokens.row_length, 1);
    const Mesh mesh;
    TrainEngine engine(source.config, engine_settings, *backend, mesh);
    engine.allocate();
    if (const std::string text = engine.load_weights(source.weights, settings.seed).text(); !text.empty())
        say(text);
    EngineModel model(engine, source.config, *backend, mesh);
    TokenFileData data(*tokens.validation.rows,
                       {.sampler = evaluation_sampler(settings),
                        .collator = {.pad_id = 0, .ignore_every_pad_id = false},
                        .max_samples = arguments.optional_integer("max_eval_samples")},
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
    command->callback([options] {
        try {
            evaluate(*options);
        } catch (const UsageError& error) {
            throw UsageError(own_words(error.cause()), own_words(error.remedy()));
        } catch (const Error& error) {
            throw Error(own_words(error.cause()), own_words(error.remedy()));
        }
    });
}

}  // namespace drover
