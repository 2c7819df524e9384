#include "app/run_clm_sources.h"

#include <fmt/format.h>

#include "api/find_model.h"
#include "core/content_hash.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/stopwatch.h"
#include "data/block_size.h"
#include "data/resolve_dataset.h"
#include "model/saved_config.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

ModelConfig find_config(const Arguments& arguments) {
    const auto from = [&](std::string_view flag) {
        return ModelConfig::from_path(find_model(arguments.text(flag), fmt::format("--{}", flag), arguments));
    };
    ModelConfig config = [&] {
        if (arguments.has("config_name")) return from("config_name");
        if (arguments.has("model_name_or_path")) return from("model_name_or_path");
        if (arguments.has("model_type")) {
            const std::string text = Json{{"model_type", arguments.text("model_type")}}.dump();
            return ModelConfig::parse(text, "--model_type");
        }
        throw UsageError("Neither --model_name_or_path nor --config_name nor --model_type is given.",
                         "Name a model folder to train further, or a config to start from random weights.");
    }();
    if (const auto overrides = arguments.optional_text("config_overrides"))
        config = with_config_overrides(config, *overrides);
    const std::int64_t layers = arguments.integer("num_layer"), width = arguments.integer("hidden_size");
    if (width > 0 && width != config.hidden_size && arguments.has("model_name_or_path") &&
        !arguments.has("config_name"))
        throw UsageError(fmt::format("--hidden_size is {}, but the weights of {} are {} wide.", width,
                                     arguments.text("model_name_or_path"), config.hidden_size),
                         "Leave it out, or name the config alone, with --config_name, to start from random "
                         "weights.");
    if (layers > 0 || width > 0) config = with_sizes(config, layers, width);
    return config;
}

/// A tokenizer lies beside the weights, or where --tokenizer_name says.
std::shared_ptr<const Tokenizer> find_tokenizer(const Arguments& arguments) {
    for (const char* flag : {"tokenizer_name", "model_name_or_path"})
        if (arguments.has(flag))
            return load_tokenizer(find_model(arguments.text(flag), fmt::format("--{}", flag), arguments));
    throw UsageError("There is no tokenizer: neither --tokenizer_name nor --model_name_or_path is given.",
                     "Add --tokenizer_name with a folder, a tokenizer.json or a tokenizer.model.");
}

std::vector<std::string> one_or_none(const std::optional<std::string>& file) {
    return file ? std::vector<std::string>{*file} : std::vector<std::string>{};
}

DatasetRequest dataset_request(const Arguments& arguments) {
    DatasetRequest request;
    request.dataset_name = arguments.optional_text("dataset_name").value_or("");
    request.dataset_config_name = arguments.optional_text("dataset_config_name").value_or("");
    request.cache_dir = arguments.optional_text("cache_dir").value_or("");
    request.train_files = one_or_none(arguments.optional_text("train_file"));
    request.validation_files = one_or_none(arguments.optional_text("validation_file"));
    request.text_column = arguments.optional_text("text_column").value_or("");
    request.keep_linebreaks = arguments.flag("keep_linebreaks");
    request.notes = cache_notes_folder(default_cache_folder());
    return request;
}

void check_split(const SharedRows& rows, std::string_view split) {
    if (!rows) throw Error(fmt::format("The dataset has no split \"{}\".", split), "Give a file for it.");
}

/// What the longest row of a file needs.
std::int64_t longest_row(const TokenRows& rows) {
    std::int64_t longest = 0;
    for (const std::int64_t length : rows.lengths()) longest = std::max(longest, length);
    return longest;
}

/// With `make_again`, what --overwrite_cache asks for is done.
TokenSource find_tokens(const Arguments& arguments, const ModelSource& model, const Messages& messages,
                        bool make_again) {
    PackingOptions packing;
    packing.packing = packing_from_name(arguments.text("packing"), "--packing");
    // run_clm.py does not split a stream among its workers.
    if (!arguments.flag("streaming"))
        packing.workers = arguments.optional_integer("preprocessing_num_workers").value_or(1);
    packing.block_size = 0;
    if (packing.packing != Packing::none) {
        const BlockSizeChoice choice =
            choose_block_size(arguments.optional_integer("block_size"), model.tokenizer->model_max_length(),
                              model.config.max_position_embeddings);
        packing.block_size = choice.block_size;
        if (!choice.warning.empty()) messages.warning(choice.warning);
        if (choice.block_size > model.config.max_position_embeddings)
            messages.warning(fmt::format(
                "The block size {} is more than the model's max_position_embeddings, {}: it is trained on "
                "positions that it was not made for. Lower --block_size unless you mean it.",
                choice.block_size, model.config.max_position_embeddings));
    }

    const DatasetRequest request = dataset_request(arguments);
    if (request.dataset_name.empty() && request.train_files.empty() && request.validation_files.empty())
        throw UsageError(
            "There is no text to train on: --train_file, --validation_file and --dataset_name are unset.",
            "Name a file with --train_file, or a dataset.");
    const bool train = arguments.flag("do_train"), evaluate = arguments.flag("do_eval");
    const TrainAndValidation splits = load_train_and_validation(
        request, {.validation_percent = static_cast<int>(arguments.integer("validation_split_percentage")),
                  .streaming = arguments.flag("streaming"),
                  .do_train = train});

    if (train) check_split(splits.train, "train");
    if (evaluate) check_split(splits.validation, "validation");

    TokenSource source;
    source.name = request.dataset_name;
    source.packing = packing;
    if (arguments.flag("streaming")) {
        messages.info("The text is read, tokenized and packed in order while it is used; nothing is kept.");
        if (train) source.streamed.train = splits.train;
        if (train) source.train_hash = "files " + splits.train->quick_fingerprint();
        if (evaluate) source.streamed.validation = splits.validation;
        source.row_length = packing.block_size;
        return source;
    }
    TokenCache cache(default_cache_folder());
    const auto tokens_of = [&](const SharedRows& rows, std::string_view split) -> std::unique_ptr<TokenFile> {
        const Stopwatch watch;
        TokenCache::Entry entry = cache.get(*rows, model.tokenizer, packing, default_tokenize_threads(),
                                            make_again && arguments.flag("overwrite_cache"));
        const TokenFileHeader& header = entry.file.rows().header();
        messages.info(
            fmt::format("{}: {} of {} tokens, {} in {:.2f} s ({})", split, counted(header.rows, "row"),
                        packing.block_size > 0 ? std::to_string(packing.block_size) : "varying",
                        entry.made ? "tokenized" : "found", watch.seconds(), entry.file.path().string()));
        entry.file.rows().check_vocabulary(model.config.vocab_size);
        source.row_length = std::max(
            source.row_length, packing.block_size > 0 ? packing.block_size : longest_row(entry.file.rows()));
        return std::make_unique<TokenFile>(std::move(entry.file));
    };
    if (train) source.train = tokens_of(splits.train, "train");
    if (train) source.train_hash = "content " + splits.train->fingerprint();
    if (evaluate) source.validation = tokens_of(splits.validation, "validation");
    return source;
}

}  // namespace

fs::path find_model(const std::string& name, std::string_view flag, const Arguments& arguments) {
    return find_pretrained(name, flag, arguments.optional_text("cache_dir").value_or(""),
                           arguments.text("model_revision"));
}

ModelSource find_model_and_tokenizer(const Arguments& arguments) {
    ModelSource source{.config = find_config(arguments), .tokenizer = find_tokenizer(arguments)};
    source.generation = derived_generation_config(source.config);
    if (arguments.has("model_name_or_path")) {
        source.weights = find_model(arguments.text("model_name_or_path"), "--model_name_or_path", arguments);
        if (const fs::path file = source.weights / "generation_config.json"; fs::exists(file))
            source.generation = read_json_file(file);
    }
    if (source.tokenizer->size() > source.config.vocab_size)
        source.config.resize_vocabulary(source.tokenizer->size());
    return source;
}

void check_models_alike(const RunProcesses& processes, const ModelSource& model) {
    check_ranks_agree(processes.ranks,
                      {{"the model's config", ContentHash().add(model.config.json.dump()).hex()},
                       {"the tokenizer", model.tokenizer->fingerprint()}});
}

TokenSource find_tokens_together(const RunProcesses& processes, const Arguments& arguments,
                                 const ModelSource& model, const Messages& messages) {
    TokenSource tokens;
    const bool goes_first = processes.machine.rank == 0;
    processes.ranks.in_turns(goes_first,
                             [&] { tokens = find_tokens(arguments, model, messages, goes_first); });
    NamedTexts files;
    if (tokens.train) files.emplace_back("the training data", tokens.train->path().filename().string());
    if (tokens.validation)
        files.emplace_back("the validation data", tokens.validation->path().filename().string());
    if (tokens.streamed.train)
        files.emplace_back("the files of the training data", tokens.streamed.train->quick_fingerprint());
    if (tokens.streamed.validation)
        files.emplace_back("the files of the validation data",
                           tokens.streamed.validation->quick_fingerprint());
    check_ranks_agree(processes.ranks, files);
    return tokens;
}

}  // namespace drover
