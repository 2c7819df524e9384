#include "run/sft_source.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/json_text.h"
#include "core/number_text.h"
#include "core/stopwatch.h"
#include "core/text_file.h"
#include "data/conversation/example_stream.h"
#include "data/conversation/sft_rows.h"
#include "run/settings/run_settings.h"
#include "text/chat/template_files.h"
#include "text/tokenizer.h"

namespace drover {
namespace {

/// The token's, or as TRL chooses it: the tokenizer's own, or else its EOS.
TokenId sft_pad_id(const SftSettings& sft, const Tokenizer& tokenizer) {
    if (!sft.pad_token.empty()) {
        if (const auto id = tokenizer.find(sft.pad_token)) return *id;
        throw Error(
            fmt::format("--pad_token is \"{}\", which is not a token of this tokenizer.", sft.pad_token),
            "Name a token of its vocabulary.");
    }
    if (const auto pad = tokenizer.pad()) return *pad;
    if (const auto named = tokenizer.find(sft.rows.eos_token); named && !sft.rows.eos_token.empty())
        return *named;
    if (const auto eos = tokenizer.eos()) return *eos;
    throw Error("The tokenizer has neither a pad token nor EOS to pad rows with.",
                "Name a token with --pad_token.");
}

void check_sft_settings(const RunSettings& settings) {
    const SftSettings& sft = *settings.data.sft;
    if (settings.data.streaming && !sft.rows.max_length)
        throw UsageError("--streaming does not know how long the longest example is.",
                         "Give the length of a row with --max_length, or leave out --streaming.");
    if (settings.data.streaming && sft.rows.shuffle_seed)
        throw UsageError("--streaming reads the examples in order, and cannot shuffle them.",
                         "Leave out --shuffle_dataset or --streaming.");
    if (sft.rows.max_length && *sft.rows.max_length < 2)
        throw UsageError(
            fmt::format("--max_length is {}, and one token alone predicts nothing.", *sft.rows.max_length),
            "Use at least 2.");
    const bool packs = sft.rows.packing != DocumentPacking::none || sft.eval_packing.value_or(false);
    if (packs && !sft.rows.max_length)
        throw UsageError("Rows are packed, but --max_length is unset.", "Give the length of a row.");
    if (sft.pad_to_multiple_of < 1)
        throw UsageError(fmt::format("--pad_to_multiple_of is {}.", sft.pad_to_multiple_of),
                         "Use at least 1.");
}

std::filesystem::path template_path(const RunSettings& settings) {
    const std::string& path = settings.data.sft->chat_template_path;
    return path.empty() ? std::filesystem::path()
                        : find_pretrained(path, "--chat_template_path",
                                          {.revision = settings.model.revision,
                                           .cache = settings.model.cache_dir,
                                           .token = settings.model.token,
                                           .parts = ModelParts::texts});
}

/// The packing of rows to evaluate.
DocumentPacking evaluation_packing(const SftSettings& sft) {
    if (!sft.eval_packing) return sft.rows.packing;
    if (!*sft.eval_packing) return DocumentPacking::none;
    return sft.rows.packing == DocumentPacking::none ? DocumentPacking::bfd : sft.rows.packing;
}

}  // namespace

SftRowFinder::SftRowFinder(const RunSettings& settings, const ModelSource& model, const Messages& messages,
                           bool make_again)
    : settings_(settings), model_(model), messages_(messages), make_again_(make_again) {
    check_sft_settings(settings);
    if (!model.tokenizer)
        throw Error("Supervised fine-tuning needs a tokenizer, and there is none.",
                    fmt::format("Name one with {}.", settings.names.tokenizer));
    const SftSettings& sft = *settings.data.sft;
    pad_id_ = sft_pad_id(sft, *model.tokenizer);
    const std::string& name = settings.model.tokenizer_name.empty() ? settings.model.model_name_or_path
                                                                    : settings.model.tokenizer_name;
    template_ = find_example_template(template_path(settings),
                                      find_pretrained(name, settings.names.tokenizer,
                                                      {.revision = settings.model.revision,
                                                       .cache = settings.model.cache_dir,
                                                       .token = settings.model.token,
                                                       .parts = ModelParts::texts}),
                                      *model.tokenizer);
}

SftOptions SftRowFinder::options_of(bool is_training) const {
    const SftSettings& sft = *settings_.data.sft;
    SftOptions options = sft.rows;
    if (!is_training) options.packing = evaluation_packing(sft);
    return options;
}

ExampleFormat SftRowFinder::format_of(const SharedRows& rows, std::string_view split) const {
    const std::string& text_field = settings_.data.sft->rows.text_field;
    const ExampleFormat format = find_example_format(rows->column_names(), text_field, split);
    messages_.info(fmt::format("{}: {}", split, format_line(format, rows->column_names(), text_field)));
    return format;
}

std::shared_ptr<const ExampleTokenizer> SftRowFinder::examples_of(ExampleFormat format,
                                                                  const SftOptions& options,
                                                                  bool is_training) const {
    auto examples = std::make_shared<const ExampleTokenizer>(model_.tokenizer, template_, format, options);
    if (const std::string warning = examples->warning(); !warning.empty() && is_training)
        messages_.warning(warning);
    return examples;
}

OpenTokenRows SftRowFinder::stream(const SharedRows& rows, std::string_view split, bool is_training) const {
    if (const TokenForm* const form = rows->token_form())
        throw Error(fmt::format("{} holds rows of token ids, which are not streamed here.", form->name),
                    "Leave out --streaming: such rows are read when they are needed.");
    const SftOptions options = options_of(is_training);
    const ExampleFormat format = format_of(rows, split);
    const auto examples = examples_of(format, options, is_training);
    const auto warnings = std::make_shared<FirstWarnings>(
        std::string(split), options,
        [messages = messages_](const std::string& sentence) { messages.warning(sentence); });
    return [rows, format, examples, options, warnings](std::size_t threads) {
        return std::make_unique<ExampleStream>(*rows, format, examples, options, threads, warnings);
    };
}

TokenSplit SftRowFinder::find(const SharedRows& rows, std::string_view split, bool is_training) const {
    const SftOptions options = options_of(is_training);
    if (rows->token_form() != nullptr) return take(rows, split, options);

    const ExampleFormat format = format_of(rows, split);
    const auto shared = examples_of(format, options, is_training);
    const ExampleTokenizer& examples = *shared;
    const Stopwatch watch;
    TokenCache::Made entry =
        TokenCache(default_cache_folder())
            .get(sft_cache_key(*rows, examples, options), make_again_ && settings_.data.overwrite_cache,
                 [&](const std::filesystem::path& path) {
                     return write_sft_file(path, *rows, format, examples, *model_.tokenizer, options,
                                           default_tokenize_threads())
                         .to_text();
                 });
    entry.file.rows().check_vocabulary(model_.config.vocab_size);
    const SftReport report = SftReport::from_text(entry.note);
    const auto file = std::make_shared<TokenFile>(std::move(entry.file));
    TokenSplit found{.packing = {.packing = Packing::none, .block_size = options.max_length.value_or(0)}};
    found.rows = std::shared_ptr<const TrainingRows>(file, &file->rows());
    found.identity = file->path().filename().string();
    messages_.info(fmt::format("{}: {}{} of up to {}, {} in {:.2f} s ({})", split,
                               counted(found.rows->size(), "row"),
                               options.packing == DocumentPacking::none
                                   ? std::string()
                                   : fmt::format(" ({} of {})", document_packing_name(options.packing),
                                                 counted(report.examples, "example")),
                               counted(found.rows->longest(), "token"), entry.made ? "tokenized" : "found",
                               watch.seconds(), file->path().string()));
    if (report.tokens > 0)
        messages_.info(fmt::format(
            "{}: {} of {} are learned ({:.1f} %)", split, report.labels, counted(report.tokens, "token"),
            100.0 * static_cast<double>(report.labels) / static_cast<double>(report.tokens)));
    for (const std::string& sentence : report.warnings(split, options)) messages_.warning(sentence);
    if (found.rows->longest() < 2)
        throw Error(fmt::format("{}: no row has two tokens, so there is nothing to predict.", split),
                    "Use longer examples.");
    return found;
}

TokenSplit SftRowFinder::take(const SharedRows& rows, std::string_view split,
                              const SftOptions& options) const {
    const TokenForm& form = *rows->token_form();
    if (!form.rows_are_final || options.packing != DocumentPacking::none)
        throw Error(fmt::format("{} holds rows of token ids, which are not packed here.", form.name),
                    "Leave out --packing, or give the text.");
    if (options.shuffle_seed)
        throw Error(fmt::format("{} holds rows of token ids, which are not shuffled here.", form.name),
                    "Leave out --shuffle_dataset: rows are trained on in random order anyway.");
    if (form.largest_id >= model_.config.vocab_size)
        throw Error(fmt::format("{} holds token id {}, but the model's vocab_size is {}.", form.name,
                                form.largest_id, model_.config.vocab_size),
                    "Use the tokenizer that belongs to this model, or raise vocab_size.");
    TokenSplit found{.packing = {.packing = Packing::none, .block_size = options.max_length.value_or(0)}};
    found.rows = rows->token_rows();
    found.identity = rows->fingerprint();
    messages_.info(
        fmt::format("{}: {} of tokens, of {}", split, counted(found.rows->size(), "row"), form.name));
    if (options.max_length && found.rows->longest() > *options.max_length) {
        messages_.warning(
            fmt::format("{}: rows have up to {} tokens; what is beyond the first {} of a row is cut off.",
                        split, found.rows->longest(), *options.max_length));
        found.rows = cut_training_rows(found.rows, *options.max_length);
        found.identity += fmt::format(" cut {}", *options.max_length);
    }
    return found;
}

std::string sft_eos_token(const RunSettings& settings) {
    const std::string& named = settings.data.sft->rows.eos_token;
    const std::filesystem::path path = template_path(settings);
    if (!named.empty() || !std::filesystem::is_directory(path)) return named;
    return named_special_tokens(path).value("eos_token", "");
}

void write_sft_texts(const std::filesystem::path& folder, const RunSettings& settings) {
    namespace fs = std::filesystem;
    if (const fs::path path = template_path(settings); !path.empty()) {
        write_file_atomically(folder / "chat_template.jinja",
                              fs::is_directory(path)
                                  ? choose_chat_template(find_chat_templates(path), path, false).text
                                  : read_text_file(path));
        fs::remove_all(folder /
                       more_templates_folder);  // those of the model; the given one takes their place
    }
    const std::string eos = sft_eos_token(settings);
    if (eos.empty()) return;
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
        if (!fs::exists(folder / name)) continue;
        Json tokens = read_json_file(folder / name);
        tokens["eos_token"] = eos;
        write_file_atomically(folder / name, tokens.dump(2) + "\n");
    }
}

}  // namespace drover
