#include "app/run_clm_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/content_hash.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/stopwatch.h"
#include "data/datasets/resolve_dataset.h"
#include "data/packing/block_size.h"
#include "data/rows/columns.h"
#include "model/saved_config.h"
#include "run/find_model.h"

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
std::shared_ptr<const Tokenizer> find_tokenizer(const Arguments& arguments,
                                                TransformersRules rules = TransformersRules::v5) {
    for (const char* flag : {"tokenizer_name", "model_name_or_path"})
        if (arguments.has(flag))
            return load_tokenizer(find_model(arguments.text(flag), fmt::format("--{}", flag), arguments),
                                  rules);
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
    request.refuses_conversations = true;
    request.keep_linebreaks = arguments.flag("keep_linebreaks");
    request.notes = default_notes_folder();
    return request;
}

void check_split(const SharedRows& rows, std::string_view split) {
    if (!rows) throw Error(fmt::format("The dataset has no split \"{}\".", split), "Give a file for it.");
}

/// Rows of this packing, of the length that --block_size, the tokenizer and the model give them.
PackingOptions own_packing(Packing kind, const Arguments& arguments, const ModelSource& model,
                           const Messages& messages) {
    PackingOptions packing{.packing = kind};
    // run_clm.py does not split a stream among its workers.
    if (!arguments.flag("streaming"))
        packing.workers = arguments.optional_integer("preprocessing_num_workers").value_or(1);
    constexpr double no_limit = 1e30;
    const auto choose = kind == Packing::none ? choose_longest_row : choose_block_size;
    const BlockSizeChoice choice = choose(arguments.optional_integer("block_size"),
                                          model.tokenizer ? model.tokenizer->model_max_length() : no_limit,
                                          model.config.max_position_embeddings);
    packing.block_size = choice.block_size;
    if (!choice.warning.empty()) messages.warning(choice.warning);
    return packing;
}

/// What rows that are final say of their packing; nothing when there are none such.
std::optional<PackingOptions> final_packing(const SharedRows& rows, const Arguments& arguments,
                                            const ModelSource& model, const Messages& messages) {
    const TokenForm* const form = rows ? rows->token_form() : nullptr;
    if (form == nullptr || !form->rows_are_final) return std::nullopt;
    if (form->packing == Packing::none) return own_packing(Packing::none, arguments, model, messages);
    const auto block_size = arguments.optional_integer("block_size");
    if (block_size && *block_size != form->block_size)
        throw Error(fmt::format("{} has rows of {} tokens, but --block_size is {}.", form->name,
                                form->block_size, *block_size),
                    "Leave out --block_size, or tokenize the text again with it.");
    const std::string_view packing = packing_name(form->packing);
    const bool is_token_file = !form->may_have_labels;
    if (is_token_file && arguments.given("packing") && arguments.text("packing") != packing)
        throw Error(fmt::format("{} was made with --packing {}, but --packing is {}.", form->name, packing,
                                arguments.text("packing")),
                    "Leave out --packing, or tokenize the text again with it.");
    const auto workers = arguments.optional_integer("preprocessing_num_workers");
    if (is_token_file && form->packing == Packing::hf && workers && *workers != form->workers)
        messages.warning(fmt::format(
            "{} was made for {} workers: --preprocessing_num_workers {} does not change its blocks.",
            form->name, form->workers, *workers));
    return PackingOptions{.packing = form->packing, .block_size = form->block_size, .workers = form->workers};
}

/// Error when ids are not those of the model's tokenizer.
void check_ids(const TokenForm& form, const Arguments& arguments, const ModelSource& model) {
    const auto is_of = [&](TransformersRules rules) {
        return find_tokenizer(arguments, rules)->fingerprint() == form.tokenizer;
    };
    if (model.tokenizer && !form.tokenizer.empty() && model.tokenizer->fingerprint() != form.tokenizer &&
        !is_of(TransformersRules::v4))
        throw Error(fmt::format("{} was made with another tokenizer than this model's.", form.name),
                    "Tokenize the text again with the model's tokenizer, or name the one that was used.");
    if (form.largest_id >= model.config.vocab_size)
        throw Error(fmt::format("{} holds token id {}, but the model's vocab_size is {}.", form.name,
                                form.largest_id, model.config.vocab_size),
                    "Use the tokenizer that belongs to this model, or raise vocab_size.");
}

/// Makes or finds the rows of one split after the other.
class RowFinder {
  public:
    RowFinder(const Arguments& arguments, const ModelSource& model, const Messages& messages, bool make_again)
        : arguments_(arguments), model_(model), messages_(messages), make_again_(make_again) {}

    TokenSplit find(const SharedRows& rows, std::string_view split, const PackingOptions& packing) {
        TokenSplit found{.packing = packing};
        const TokenForm* const form = rows->token_form();
        if (form != nullptr) check_ids(*form, arguments_, model_);
        if (form != nullptr && (form->rows_are_final || packing.packing == Packing::none)) {
            take(rows, split, found);
        } else {
            pack(rows, split, found);
        }
        if (found.rows->longest() < 2)
            throw Error(
                fmt::format("No row of the {} data has two tokens, so there is nothing to predict.", split),
                "Use longer rows, or blocks of several rows.");
        return found;
    }

  private:
    /// Rows of ids as they are, but for what is too long.
    void take(const SharedRows& rows, std::string_view split, TokenSplit& found) const {
        found.rows = rows->token_rows();
        found.identity = rows->fingerprint();
        say(split, found, fmt::format("of {}", rows->token_form()->name));
        const std::int64_t longest = found.packing.block_size;
        if (found.packing.packing != Packing::none || longest == 0 || found.rows->longest() <= longest)
            return;
        messages_.warning(
            fmt::format("{}: rows have up to {} tokens; what is beyond the first {} of a row is cut off.",
                        split, found.rows->longest(), longest));
        found.rows = cut_training_rows(found.rows, longest);
        found.identity += fmt::format(" cut {}", longest);
    }

    void pack(const SharedRows& rows, std::string_view split, TokenSplit& found) {
        if (!model_.tokenizer)
            throw Error(fmt::format("{} holds rows of text that are to be packed, and there is no tokenizer.",
                                    rows->token_form()->name),
                        "Name the tokenizer that they were made with.");
        const Stopwatch watch;
        TokenCache::Entry entry = TokenCache(default_cache_folder())
                                      .get(*rows, model_.tokenizer, found.packing, default_tokenize_threads(),
                                           make_again_ && arguments_.flag("overwrite_cache"));
        entry.file.rows().check_vocabulary(model_.config.vocab_size);
        const auto file = std::make_shared<TokenFile>(std::move(entry.file));
        found.rows = std::shared_ptr<const TrainingRows>(file, &file->rows());
        found.identity = file->path().filename().string();
        say(split, found,
            fmt::format("{} in {:.2f} s ({})", entry.made ? "tokenized" : "found", watch.seconds(),
                        file->path().string()));
        if (found.packing.packing == Packing::none && entry.dropped > 0)
            messages_.warning(fmt::format(
                "{}: {} of {} tokens were cut off, beyond the first {} of a row.", split, entry.dropped,
                entry.dropped + static_cast<std::int64_t>(file->rows().header().tokens),
                found.packing.block_size));
    }

    void say(std::string_view split, const TokenSplit& found, std::string_view where) const {
        const bool blocks = found.packing.packing != Packing::none;
        messages_.info(fmt::format("{}: {} of {} tokens, {}", split, counted(found.rows->size(), "row"),
                                   blocks ? std::to_string(found.packing.block_size) : "varying", where));
    }

    const Arguments& arguments_;
    const ModelSource& model_;
    const Messages& messages_;
    bool make_again_;
};

/// With `make_again`, what --overwrite_cache asks for is done.
TokenSource find_tokens(const Arguments& arguments, const ModelSource& model, const Messages& messages,
                        bool make_again) {
    const DatasetRequest request = dataset_request(arguments);
    if (request.dataset_name.empty() && request.train_files.empty() && request.validation_files.empty())
        throw UsageError(
            "There is no text to train on: --train_file, --validation_file and --dataset_name are unset.",
            "Name a file with --train_file, or a dataset.");
    const bool train = arguments.flag("do_train"), evaluate = arguments.flag("do_eval");
    TrainAndValidation splits = load_train_and_validation(
        request, {.validation_percent = static_cast<int>(arguments.integer("validation_split_percentage")),
                  .streaming = arguments.flag("streaming"),
                  .do_train = train,
                  .do_eval = evaluate});
    if (train) check_split(splits.train, "train");
    if (evaluate) check_split(splits.validation, "validation");
    if (!train) splits.train = nullptr;
    if (!evaluate) splits.validation = nullptr;

    const std::optional<PackingOptions> final_train = final_packing(splits.train, arguments, model, messages),
                                        final_validation =
                                            final_packing(splits.validation, arguments, model, messages);
    // Text beside rows that are final is packed as they are.
    const PackingOptions packing =
        final_train        ? *final_train
        : final_validation ? *final_validation
                           : own_packing(packing_from_name(arguments.text("packing"), "--packing"), arguments,
                                         model, messages);
    if (packing.block_size > model.config.max_position_embeddings)
        messages.warning(fmt::format(
            "The block size {} is more than the model's max_position_embeddings, {}: it is trained on "
            "positions that it was not made for. Lower --block_size unless you mean it.",
            packing.block_size, model.config.max_position_embeddings));
    if (const SharedRows& text = splits.train ? splits.train : splits.validation;
        text && text->token_form() == nullptr && text->column_names() != std::vector<std::string>{"text"})
        messages.info(columns_line(text->column_names(), text->text_column()));

    TokenSource source;
    source.name = request.dataset_name;
    source.packing = packing;
    source.train.packing = final_train.value_or(packing);
    source.validation.packing = final_validation.value_or(packing);
    if (arguments.flag("streaming")) {
        messages.info("The text is read, tokenized and packed in order while it is used; nothing is kept.");
        for (const SharedRows& rows : {splits.train, splits.validation}) {
            const TokenForm* const form = rows ? rows->token_form() : nullptr;
            if (form != nullptr) check_ids(*form, arguments, model);
        }
        if (splits.train) source.train_hash = "files " + splits.train->quick_fingerprint();
        source.train.streamed = splits.train;
        source.validation.streamed = splits.validation;
        source.row_length = std::max(source.train.packing.block_size, source.validation.packing.block_size);
        return source;
    }
    RowFinder finder(arguments, model, messages, make_again);
    for (const auto& [rows, name, split] :
         {std::tuple(splits.train, "train", &source.train),
          std::tuple(splits.validation, "validation", &source.validation)}) {
        if (!rows) continue;
        *split = finder.find(rows, name, split->packing);
        const bool blocks = split->packing.packing != Packing::none;
        if (!blocks) source.packing = split->packing;
        source.row_length =
            std::max(source.row_length, blocks ? split->packing.block_size : split->rows->longest());
    }
    if (splits.train) source.train_hash = "content " + splits.train->fingerprint();
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
    if (const std::int64_t before = model.config.rows_before_resize; before > 0)
        messages.warning(
            fmt::format("The tokenizer has {} tokens and the model's vocabulary {}: the model gets {} more, "
                        "untrained ones.",
                        model.config.vocab_size, before, model.config.vocab_size - before));
    TokenSource tokens;
    const bool goes_first = processes.machine.rank == 0;
    processes.ranks.in_turns(goes_first,
                             [&] { tokens = find_tokens(arguments, model, messages, goes_first); });
    NamedTexts files;
    const auto add = [&](std::string_view name, const TokenSplit& split) {
        if (split.rows) files.emplace_back(fmt::format("the {} data", name), split.identity);
        if (split.streamed)
            files.emplace_back(fmt::format("the files of the {} data", name),
                               split.streamed->quick_fingerprint());
    };
    add("training", tokens.train);
    add("validation", tokens.validation);
    check_ranks_agree(processes.ranks, files);
    return tokens;
}

}  // namespace drover
