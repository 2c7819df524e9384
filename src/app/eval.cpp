#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/python_json.h"
#include "data/packing/token_file.h"
#include "run/adapter_source.h"
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
    std::vector<std::string> adapters;
    std::int64_t block_size = 0, batch_size = 8, max_samples = 0, threads = 0;
    bool json = false;
    bool sft = false;  ///< the rows are conversations, or prompts with completions
    bool assistant_only_loss = false;
    std::string chat_template_path;
    std::int64_t max_length = 1024;  ///< 0: rows are not cut
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
    if (!options.sft) return settings;
    SftSettings& sft = settings.data.sft.emplace();
    if (!options.text_column.empty()) sft.rows.text_field = options.text_column;
    sft.rows.max_length = options.max_length > 0 ? std::optional(options.max_length) : std::nullopt;
    sft.rows.assistant_only_loss = options.assistant_only_loss;
    sft.chat_template_path = options.chat_template_path;
    settings.names.block_size = "--max_length";
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

/// The base model's weights, or those with an adapter merged into them.
void load_for_eval(TrainEngine& engine, const ModelSource& source,
                   const std::vector<AdapterWeights>& adapters, std::uint64_t seed) {
    std::string text;
    if (adapters.empty()) {
        text = engine.load_weights(source.weights, seed).text();
    } else {
        const MergedWeights merged(source.weights, source.config, adapters);
        engine.take_weights([&](const LeafSpec& leaf) { return merged.read(leaf.name, leaf.shape); }, seed);
        text = merged.report().text();
    }
    if (!text.empty()) print_log(stderr, "{}\n", text);
}

Json result_of(const EvaluationSummary& summary, std::int64_t samples) {
    return {{"loss", summary.loss},
            {"perplexity", perplexity(summary.loss)},
            {"accuracy", summary.accuracy},
            {"samples", samples}};
}

/// One result as lines; those of several adapters as a table.
void print_results(const std::vector<std::pair<std::string, Json>>& results, bool as_json) {
    if (as_json) {
        for (const auto& [name, result] : results) {
            Json line = result;
            if (results.size() > 1) line["adapter"] = name;
            print_result("{}\n", python_json_line(line));
        }
        return;
    }
    const auto number = [](const Json& result, const char* key) { return result.at(key).get<double>(); };
    if (results.size() == 1) {
        const Json& result = results.front().second;
        print_result("loss       {:.6f}\nperplexity {:.4f}\naccuracy   {:.4f}\nsamples    {}\n",
                     number(result, "loss"), number(result, "perplexity"), number(result, "accuracy"),
                     result.at("samples").get<std::int64_t>());
        return;
    }
    std::size_t width = std::string_view("adapter").size();
    for (const auto& [name, result] : results) width = std::max(width, name.size());
    print_result("{:<{}}  {:>9}  {:>12}  {:>8}  {:>7}\n", "adapter", width, "loss", "perplexity", "accuracy",
                 "samples");
    for (const auto& [name, result] : results)
        print_result("{:<{}}  {:>9.6f}  {:>12.4f}  {:>8.4f}  {:>7}\n", name, width, number(result, "loss"),
                     number(result, "perplexity"), number(result, "accuracy"),
                     result.at("samples").get<std::int64_t>());
}

void evaluate(EvalOptions options) {
    const AdaptedModel adapted =
        find_adapted_model(options.model, "--model", options.adapters, "--adapter_name_or_path");
    options.model = adapted.weights.string();
    if (options.tokenizer.empty() && adapted.tokenizer != adapted.weights)
        options.tokenizer = adapted.tokenizer.string();
    RunSettings settings = eval_settings(options);
    ModelSource source = find_eval_model(options, settings);
    if (settings.data.sft && settings.data.sft->rows.max_length)
        settings.data.sft->rows.max_length =
            std::min(*settings.data.sft->rows.max_length, source.config.max_position_embeddings);
    std::vector<std::vector<AdapterWeights>> turns;  // one adapter each, or none
    for (const NamedAdapter& adapter : adapted.adapters)
        turns.push_back(open_adapter(&adapter, source.config));
    if (turns.empty()) turns.emplace_back();
    for (const std::vector<AdapterWeights>& turn : turns) source.config = merged_config(source.config, turn);
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
    EngineModel model(engine, source.config, *backend, mesh);
    std::vector<std::pair<std::string, Json>> results;
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
        load_for_eval(engine, source, turns[turn], settings.loop.seed);
        TokenFileData data(*tokens.validation.rows,
                           {.sampler = evaluation_sampler(settings.loop),
                            .collator = {.pad_id = tokens.pad_id.value_or(0), .ignore_every_pad_id = false},
                            .max_samples = settings.data.max_eval_samples},
                           StreamEnd::after_one_epoch);
        const EvaluationSummary summary = evaluate_all(model, data, [](std::int64_t, std::int64_t) {});
        if (summary.targets == 0)
            throw Error(fmt::format("No row of {} has a token to predict.", options.data),
                        "Rows need at least two tokens.");
        results.emplace_back(adapted.adapters.empty() ? "" : adapted.adapters[turn].name,
                             result_of(summary, data.samples()));
    }
    print_results(results, options.json);
}

}  // namespace

void add_eval_command(const Command& app) {
    auto options = std::make_shared<EvalOptions>();
    const Command command = app.add_command(
        "eval",
        "Measure a model on a text: loss, perplexity and accuracy, as run_clm's evaluation has them; with "
        "--sft on conversations, as drover sft has them.\n"
        "Example: drover eval --model out --data held-out.txt --block_size 1024");
    command.show_defaults();
    constexpr std::int64_t largest_count = std::int64_t{1} << 30;
    command
        .add_option("--model", options->model,
                    "model folder, or a repository in the Hugging Face cache; or a LoRA adapter, whose base "
                    "model is found")
        .required();
    command.add_option("--adapter_name_or_path", options->adapters,
                       "LoRA adapters of the model, PATH or NAME=PATH; each is measured in turn");
    command
        .add_option("--data", options->data,
                    "text, JSON or CSV file, a token file, or a folder with input_ids")
        .required()
        .existing_path();
    command.add_option("--tokenizer", options->tokenizer,
                       "folder or file of the tokenizer; that of the model when empty");
    command.add_option("--text_column", options->text_column,
                       "column of a JSON or CSV file; \"text\" or the first");
    const Flag block_size =
        command.add_option("--block_size", options->block_size, "tokens per row; 0: as run_clm chooses")
            .between(0, largest_count);
    const Flag sft =
        command
            .add_flag(
                "--sft", options->sft,
                "rows are conversations, prompts with completions, Alpaca's or ShareGPT's, and only what "
                "drover sft would learn of them counts")
            .excludes(block_size);
    command
        .add_flag("--assistant_only_loss", options->assistant_only_loss,
                  "only what the assistant says counts; the template must mark it with {% generation %}")
        .needs(sft);
    command
        .add_option("--chat_template_path", options->chat_template_path,
                    "file or folder of the chat template; that of the tokenizer when empty")
        .needs(sft);
    command
        .add_option("--max_length", options->max_length,
                    "longest row, in tokens, up to the model's positions; what is longer is cut. "
                    "0: any length")
        .needs(sft)
        .between(0, largest_count);
    command.add_option("--batch_size", options->batch_size, "rows per batch").between(1, largest_count);
    command.add_option("--max_samples", options->max_samples, "only the first rows; 0: all")
        .between(0, largest_count);
    command.add_option("--dtype", options->dtype, "float32 or bfloat16; auto: the model's");
    command.add_option("--device", options->device, "auto takes a GPU when there is one")
        .one_of({"auto", "cpu", "cuda"});
    command.add_option("--threads", options->threads, "threads of the CPU; 0: as many as OpenMP would take")
        .between(0, 4096);
    command.add_flag("--json", options->json, "print one JSON object, or with several adapters one each");
    command.set_action([options] { evaluate(*options); });
}

}  // namespace drover
