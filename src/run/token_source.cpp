#include "run/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/number_text.h"
#include "core/stopwatch.h"
#include "data/datasets/resolve_dataset.h"
#include "data/packing/block_size.h"
#include "data/packing/token_cache.h"
#include "data/rows/columns.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> one_or_none(const std::string& file) {
    return file.empty() ? std::vector<std::string>{} : std::vector<std::string>{file};
}

DatasetRequest dataset_request(const RunSettings& settings) {
    const DataSettings& data = settings.data;
    DatasetRequest request;
    request.dataset_name = data.dataset_name;
    request.dataset_config_name = data.dataset_config_name;
    request.cache_dir = settings.model.cache_dir;
    request.train_files = one_or_none(data.train_file);
    request.validation_files = one_or_none(data.validation_file);
    request.text_column = data.text_column;
    request.refuses_conversations = true;
    request.keep_linebreaks = data.keep_linebreaks;
    request.notes = default_notes_folder();
    return request;
}

void check_split(const SharedRows& rows, std::string_view split) {
    if (!rows) throw Error(fmt::format("The dataset has no split \"{}\".", split), "Give a file for it.");
}

/// Rows of this packing, with the length that follows from --block_size, the tokenizer and the model.
PackingOptions own_packing(Packing kind, const RunSettings& settings, const ModelSource& model,
                           const Messages& messages) {
    PackingOptions packing{.packing = kind};
    // run_clm.py does not split a stream among its workers.
    if (!settings.data.streaming) packing.workers = settings.data.preprocessing_num_workers.value_or(1);
    constexpr double no_limit = 1e30;
    const auto choose = kind == Packing::none ? choose_longest_row : choose_block_size;
    const BlockSizeChoice choice =
        choose(settings.data.block_size, model.tokenizer ? model.tokenizer->model_max_length() : no_limit,
               model.config.max_position_embeddings);
    packing.block_size = choice.block_size;
    if (!choice.warning.empty()) messages.warning(choice.warning);
    return packing;
}

/// The packing of rows that are final; nothing if they are not.
std::optional<PackingOptions> final_packing(const SharedRows& rows, const RunSettings& settings,
                                            const ModelSource& model, const Messages& messages) {
    const TokenForm* const form = rows ? rows->token_form() : nullptr;
    if (form == nullptr || !form->rows_are_final) return std::nullopt;
    if (form->packing == Packing::none) return own_packing(Packing::none, settings, model, messages);
    const auto& block_size = settings.data.block_size;
    if (block_size && *block_size != form->block_size)
        throw Error(fmt::format("{} has rows of {} tokens, but --block_size is {}.", form->name,
                                form->block_size, *block_size),
                    "Leave out --block_size, or tokenize the text again with it.");
    const std::string_view packing = packing_name(form->packing);
    const bool is_token_file = !form->may_have_labels;
    if (is_token_file && settings.data.packing_is_given && settings.data.packing != form->packing)
        throw Error(fmt::format("{} was made with --packing {}, but --packing is {}.", form->name, packing,
                                packing_name(settings.data.packing)),
                    "Leave out --packing, or tokenize the text again with it.");
    const auto& workers = settings.data.preprocessing_num_workers;
    if (is_token_file && form->packing == Packing::hf && workers && *workers != form->workers)
        messages.warning(fmt::format(
            "{} was made for {} workers: --preprocessing_num_workers {} does not change its blocks.",
            form->name, form->workers, *workers));
    return PackingOptions{.packing = form->packing, .block_size = form->block_size, .workers = form->workers};
}

/// Error if the ids are not those of the model's tokenizer.
void check_ids(const TokenForm& form, const RunSettings& settings, const ModelSource& model) {
    const auto is_of = [&](TransformersRules rules) {
        return find_tokenizer(settings.model, settings.names, rules)->fingerprint() == form.tokenizer;
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

/// Makes or finds the rows of each split.
class RowFinder {
  public:
    RowFinder(const RunSettings& settings, const ModelSource& model, const Messages& messages,
              bool make_again)
        : settings_(settings), model_(model), messages_(messages), make_again_(make_again) {}

    TokenSplit find(const SharedRows& rows, std::string_view split, const PackingOptions& packing) {
        TokenSplit found{.packing = packing};
        const TokenForm* const form = rows->token_form();
        if (form != nullptr) check_ids(*form, settings_, model_);
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
    /// Uses rows of ids unchanged, except for cutting those that are too long.
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
                                           make_again_ && settings_.data.overwrite_cache);
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

    const RunSettings& settings_;
    const ModelSource& model_;
    const Messages& messages_;
    bool make_again_;
};

/// With `make_again`, honours --overwrite_cache.
TokenSource find_tokens(const RunSettings& settings, const ModelSource& model, const Messages& messages,
                        bool make_again) {
    const DatasetRequest request = dataset_request(settings);
    if (request.dataset_name.empty() && request.train_files.empty() && request.validation_files.empty())
        throw UsageError(
            "There is no text to train on: --train_file, --validation_file and --dataset_name are unset.",
            "Name a file with --train_file, or a dataset.");
    const bool train = settings.do_train, evaluate = settings.do_eval;
    TrainAndValidation splits =
        load_train_and_validation(request, {.validation_percent = settings.data.validation_split_percentage,
                                            .streaming = settings.data.streaming,
                                            .do_train = train,
                                            .do_eval = evaluate});
    if (train) check_split(splits.train, "train");
    if (evaluate) check_split(splits.validation, "validation");
    if (!train) splits.train = nullptr;
    if (!evaluate) splits.validation = nullptr;

    const std::optional<PackingOptions> final_train = final_packing(splits.train, settings, model, messages),
                                        final_validation =
                                            final_packing(splits.validation, settings, model, messages);
    // Text used together with final rows is packed the same way.
    const PackingOptions packing = final_train ? *final_train
                                   : final_validation
                                       ? *final_validation
                                       : own_packing(settings.data.packing, settings, model, messages);
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
    if (settings.data.streaming) {
        messages.info("The text is read, tokenized and packed in order while it is used; nothing is kept.");
        for (const SharedRows& rows : {splits.train, splits.validation}) {
            const TokenForm* const form = rows ? rows->token_form() : nullptr;
            if (form != nullptr) check_ids(*form, settings, model);
        }
        if (splits.train) source.train_hash = "files " + splits.train->quick_fingerprint();
        source.train.streamed = splits.train;
        source.validation.streamed = splits.validation;
        source.row_length = std::max(source.train.packing.block_size, source.validation.packing.block_size);
        return source;
    }
    RowFinder finder(settings, model, messages, make_again);
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

TokenSource find_tokens_together(const Processes& processes, const RunSettings& settings,
                                 const ModelSource& model, const Messages& messages) {
    if (const std::int64_t before = model.config.rows_before_resize; before > 0)
        messages.warning(
            fmt::format("The tokenizer has {} tokens and the model's vocabulary {}: the model gets {} more, "
                        "untrained ones.",
                        model.config.vocab_size, before, model.config.vocab_size - before));
    TokenSource tokens;
    const bool goes_first = processes.machine.rank == 0;
    processes.group.in_turns(goes_first,
                             [&] { tokens = find_tokens(settings, model, messages, goes_first); });
    check_rows_alike(processes, tokens);
    return tokens;
}

void check_rows_alike(const Processes& processes, const TokenSource& tokens) {
    NamedTexts files;
    const auto add = [&](std::string_view name, const TokenSplit& split) {
        if (split.rows) files.emplace_back(fmt::format("the {} data", name), split.identity);
        if (split.streamed)
            files.emplace_back(fmt::format("the files of the {} data", name),
                               split.streamed->quick_fingerprint());
    };
    add("training", tokens.train);
    add("validation", tokens.validation);
    check_ranks_agree(processes.group, files);
}

}  // namespace drover
