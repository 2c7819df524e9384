#include "run/token_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/number_text.h"
#include "core/stopwatch.h"
#include "data/datasets/resolve_dataset.h"
#include "data/packing/block_size.h"
#include "data/packing/token_cache.h"
#include "data/rows/columns.h"
#include "data/sampling/mixture.h"
#include "run/settings/run_settings.h"
#include "run/sft_source.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> one_or_none(const std::string& file) {
    return file.empty() ? std::vector<std::string>{} : std::vector<std::string>{file};
}

/// One for each dataset, or one for the files.
std::vector<DatasetRequest> dataset_requests(const RunSettings& settings) {
    const DataSettings& data = settings.data;
    DatasetRequest request;
    request.cache_dir = settings.model.cache_dir;
    request.token = settings.model.token;
    request.refuses_conversations = !data.sft;
    request.keep_linebreaks = data.keep_linebreaks && !data.sft;
    request.train_split = data.train_split;
    request.validation_split = data.validation_split;
    if (data.sft) request.row_columns = example_columns(data.sft->rows.text_field);
    request.notes = default_notes_folder();
    std::vector<DatasetRequest> requests;
    for (const NamedDataset& dataset : data.datasets) {
        request.dataset_name = dataset.name;
        request.dataset_config_name = dataset.config_name;
        if (!data.sft) request.text_column = dataset.text_column;
        requests.push_back(request);
    }
    if (!requests.empty()) return requests;
    request.train_files = one_or_none(data.train_file);
    request.validation_files = one_or_none(data.validation_file);
    if (!data.sft) request.text_column = data.text_column;
    return {request};
}

/// A dataset of a run.
struct LoadedDataset {
    std::string name;  ///< for messages; empty if it is the only one
    TrainAndValidation splits;

    /// Does some work on it. Errors say which dataset they are about.
    template <class Work>
    void with_name(const Work& work) const {
        if (name.empty()) return work();
        const auto named = [&](const Error& error) {
            return error.cause().starts_with(name) ? error.cause()
                                                   : fmt::format("{}: {}", name, error.cause());
        };
        try {
            work();
        } catch (const UsageError& error) {
            throw UsageError(named(error), error.remedy());
        } catch (const Error& error) {
            throw Error(named(error), error.remedy());
        }
    }
    /// "train", or "train of <name>".
    std::string split_name(std::string_view split) const {
        return name.empty() ? std::string(split) : fmt::format("{} of {}", split, name);
    }
};

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
        throw Error(
            fmt::format("{} has rows of {} tokens, but {} is {}.", form->name, form->block_size,
                        settings.names.block_size, *block_size),
            fmt::format("Leave out {}, or tokenize the text again with it.", settings.names.block_size));
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

/// The packing of the rows that are final, in whichever datasets; nothing if none are. Error if it is not
/// one.
std::optional<PackingOptions> common_packing(const std::vector<SharedRows>& datasets,
                                             const RunSettings& settings, const ModelSource& model,
                                             const Messages& messages) {
    std::optional<PackingOptions> common;
    const TokenForm* first = nullptr;
    for (const SharedRows& rows : datasets) {
        const std::optional<PackingOptions> own = final_packing(rows, settings, model, messages);
        if (!own) continue;
        if (common && (own->packing != common->packing || own->block_size != common->block_size))
            throw Error(fmt::format("{} and {} hold rows of tokens that were packed in different ways.",
                                    first->name, rows->token_form()->name),
                        "Make them again alike, or train on one of them.");
        if (common) continue;
        common = own;
        first = rows->token_form();
    }
    return common;
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

/// Makes or finds the rows of each split; `split` is its name for messages.
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
            throw Error(fmt::format("{}: no row has two tokens, so there is nothing to predict.", split),
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

/// The rows of all datasets, one after the other. With `max_rows` (of the flag `limit`) each dataset gives
/// its first ones: its share according to the weights or, without weights, to the sizes.
TokenSplit join(const std::vector<LoadedDataset>& datasets, std::vector<TokenSplit> parts,
                const std::vector<double>& weights, std::optional<std::int64_t> max_rows,
                std::string_view limit) {
    if (parts.size() == 1) return std::move(parts.front());
    std::vector<double> shares = weights;
    if (shares.empty())
        for (const TokenSplit& part : parts) shares.push_back(static_cast<double>(part.rows->size()));
    std::vector<std::int64_t> most;
    if (max_rows) most = MixtureDealing(shares).counts(*max_rows);
    TokenSplit joined{.packing = parts.front().packing};
    std::vector<std::shared_ptr<const TrainingRows>> rows;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::int64_t kept = max_rows ? std::min(most[i], parts[i].rows->size()) : parts[i].rows->size();
        if (kept == 0)
            throw UsageError(fmt::format("--{} {} leaves no row of {}.", limit, *max_rows, datasets[i].name),
                             "Give a larger number, or leave out the dataset.");
        rows.push_back(training_row_range(parts[i].rows, 0, kept));
        joined.dataset_rows.push_back(kept);
        joined.identity += fmt::format("{} of {}; ", kept, parts[i].identity);
    }
    joined.rows = joined_training_rows(std::move(rows));
    return joined;
}

/// Of the text to train on: `fingerprint` of each dataset.
std::string hash_of(const std::vector<SharedRows>& datasets, std::string (RowDataset::*fingerprint)() const) {
    if (datasets.size() == 1) return (*datasets.front().*fingerprint)();
    ContentHash hash;
    for (const SharedRows& rows : datasets) hash.add((*rows.*fingerprint)());
    return hash.hex();
}

/// Finds the files of the datasets and opens the splits that are used.
std::vector<LoadedDataset> load_datasets(const RunSettings& settings) {
    const std::vector<DatasetRequest> requests = dataset_requests(settings);
    std::vector<LoadedDataset> datasets;
    for (const DatasetRequest& request : requests) {
        if (request.dataset_name.empty() && request.train_files.empty() && request.validation_files.empty())
            throw UsageError(
                "There is no text to train on: --train_file, --validation_file and --dataset_name are unset.",
                "Name a file with --train_file, or a dataset.");
        LoadedDataset& dataset = datasets.emplace_back();
        if (requests.size() > 1) dataset.name = request.dataset_name;
        TrainAndValidation& splits = dataset.splits;
        dataset.with_name([&] {
            splits = load_train_and_validation(
                request, {.validation_percent = settings.data.validation_split_percentage,
                          .streaming = settings.data.streaming,
                          .streams_every_row = settings.data.sft.has_value(),
                          .do_train = settings.do_train,
                          .do_eval = settings.do_eval});
            if (settings.do_train) check_split(splits.train, "train");
            if (settings.do_eval) check_split(splits.validation, "validation");
        });
        if (!settings.do_train) splits.train = nullptr;
        if (!settings.do_eval) splits.validation = nullptr;
    }
    return datasets;
}

/// The split of all datasets; empty if it is not used.
std::vector<SharedRows> all_of(const std::vector<LoadedDataset>& datasets,
                               SharedRows TrainAndValidation::*split) {
    std::vector<SharedRows> all;
    for (const LoadedDataset& dataset : datasets)
        if (dataset.splits.*split) all.push_back(dataset.splits.*split);
    return all;
}

/// With `make_again`, honours --overwrite_cache.
TokenSource find_tokens(const RunSettings& settings, const ModelSource& model, const Messages& messages,
                        bool make_again) {
    std::optional<SftRowFinder> examples;
    if (settings.data.sft) examples.emplace(settings, model, messages, make_again);
    const std::vector<LoadedDataset> datasets = load_datasets(settings);
    const std::vector<SharedRows> train = all_of(datasets, &TrainAndValidation::train),
                                  validation = all_of(datasets, &TrainAndValidation::validation);
    std::optional<PackingOptions> final_train, final_validation;
    if (!examples) {
        final_train = common_packing(train, settings, model, messages);
        final_validation = common_packing(validation, settings, model, messages);
    }
    // Text used together with final rows is packed the same way.
    const PackingOptions packing =
        examples           ? PackingOptions{.packing = Packing::none,
                                            .block_size = settings.data.sft->rows.max_length.value_or(0)}
        : final_train      ? *final_train
        : final_validation ? *final_validation
                           : own_packing(settings.data.packing, settings, model, messages);
    if (packing.block_size > model.config.max_position_embeddings)
        messages.warning(fmt::format(
            "The block size {} is more than the model's max_position_embeddings, {}: it is trained on "
            "positions that it was not made for. Lower {} unless you mean it.",
            packing.block_size, model.config.max_position_embeddings, settings.names.block_size));
    for (const LoadedDataset& dataset : datasets)
        if (const SharedRows& text = dataset.splits.train ? dataset.splits.train : dataset.splits.validation;
            text && !examples && text->token_form() == nullptr &&
            text->column_names() != std::vector<std::string>{"text"})
            messages.info((dataset.name.empty() ? "" : dataset.name + ": ") +
                          columns_line(text->column_names(), text->text_column()));

    TokenSource source;
    source.packing = packing;
    if (examples) {
        source.pad_id = examples->pad_id();
        source.pad_to_multiple_of = settings.data.sft->pad_to_multiple_of;
    }
    source.train.packing = final_train.value_or(packing);
    source.validation.packing = final_validation.value_or(packing);
    if (settings.data.streaming) {
        messages.info("The text is read, tokenized and packed in order while it is used; nothing is kept.");
        const auto open = [&](std::string_view name, SharedRows TrainAndValidation::*rows,
                              TokenSplit& split) {
            for (const LoadedDataset& dataset : datasets)
                dataset.with_name([&] {
                    if (!(dataset.splits.*rows)) return;
                    if (examples)
                        split.streamed_examples.push_back(examples->stream(
                            dataset.splits.*rows, dataset.split_name(name), &split == &source.train));
                    else if (const TokenForm* const form = (dataset.splits.*rows)->token_form())
                        check_ids(*form, settings, model);
                });
        };
        open("train", &TrainAndValidation::train, source.train);
        open("validation", &TrainAndValidation::validation, source.validation);
        if (!train.empty()) source.train_hash = "files " + hash_of(train, &RowDataset::quick_fingerprint);
        source.train.streamed = train;
        source.validation.streamed = validation;
        source.row_length = std::max(source.train.packing.block_size, source.validation.packing.block_size);
        return source;
    }
    RowFinder finder(settings, model, messages, make_again);
    const auto find = [&](std::string_view name, SharedRows TrainAndValidation::*rows,
                          const std::vector<double>& weights, std::optional<std::int64_t> max_rows,
                          std::string_view limit, TokenSplit& split) {
        std::vector<TokenSplit> parts;
        for (const LoadedDataset& dataset : datasets)
            dataset.with_name([&] {
                parts.push_back(
                    examples ? examples->find(dataset.splits.*rows, dataset.split_name(name),
                                              &split == &source.train)
                             : finder.find(dataset.splits.*rows, dataset.split_name(name), split.packing));
            });
        split = join(datasets, std::move(parts), weights, max_rows, limit);
        const bool blocks = split.packing.packing != Packing::none;
        if (!blocks) source.packing = split.packing;
        source.row_length =
            std::max(source.row_length, blocks ? split.packing.block_size : split.rows->longest());
    };
    if (settings.do_train)
        find("train", &TrainAndValidation::train, settings.data.dataset_weights,
             settings.data.max_train_samples, "max_train_samples", source.train);
    if (settings.do_eval)
        find("validation", &TrainAndValidation::validation, {}, settings.data.max_eval_samples,
             "max_eval_samples", source.validation);
    if (!train.empty())
        source.train_hash =
            "content " + (examples ? source.train.identity : hash_of(train, &RowDataset::fingerprint));
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
        if (!split.streamed.empty())
            files.emplace_back(fmt::format("the files of the {} data", name),
                               hash_of(split.streamed, &RowDataset::quick_fingerprint));
    };
    add("training", tokens.train);
    add("validation", tokens.validation);
    check_ranks_agree(processes.group, files);
}

}  // namespace drover
