#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "app/tokenize.h"
#include "app/tokenize_progress.h"
#include "core/console.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/path_inside.h"
#include "data/datasets/resolve_dataset.h"
#include "data/packing/block_size.h"
#include "data/packing/token_cache.h"

namespace drover {
namespace {

/// max_position_embeddings from the config.json next to the tokenizer; 1024 if there is none, as in run_clm.
std::int64_t positions_beside(const std::filesystem::path& tokenizer) {
    constexpr std::int64_t usual = 1024;
    const std::filesystem::path folder =
        std::filesystem::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
    if (!std::filesystem::exists(folder / "config.json")) return usual;
    const Json config = read_json_file(folder / "config.json");
    const auto positions = config.find("max_position_embeddings");
    return positions != config.end() && positions->is_number_integer() ? positions->get<std::int64_t>()
                                                                       : usual;
}

PackingOptions packing_options(const TokenizeOptions& options, const Tokenizer& tokenizer) {
    PackingOptions packing{.packing = packing_from_name(options.packing, "--packing"),
                           .block_size = 0,
                           .workers = options.workers,
                           .max_rows = options.max_samples};
    const bool whole_rows = packing.packing == Packing::none;
    // A file keeps whole rows: training cuts them to suit its model. The cache holds what training would
    // make.
    if (whole_rows && !options.block_size && !options.cache) return packing;
    const auto choose = whole_rows ? choose_longest_row : choose_block_size;
    const BlockSizeChoice choice =
        choose(options.block_size, tokenizer.model_max_length(), positions_beside(options.tokenizer));
    if (!choice.warning.empty()) print_log(stderr, "drover: warning: {}\n", choice.warning);
    packing.block_size = choice.block_size;
    return packing;
}

}  // namespace

std::shared_ptr<const FileRows> open_corpus(const TokenizeOptions& options,
                                            const std::filesystem::path& notes) {
    if (options.input.empty() == options.dataset.empty())
        throw UsageError(options.input.empty() ? "Neither --input nor --dataset is given."
                                               : "Both --input and --dataset are given.",
                         "Name files, or a dataset.");
    const ResolvedDataset resolved = resolve_dataset({.dataset_name = options.dataset,
                                                      .dataset_config_name = options.dataset_config_name,
                                                      .train_files = options.input,
                                                      .text_column = options.text_column,
                                                      .refuses_conversations = true,
                                                      .keep_linebreaks = options.keep_linebreaks,
                                                      .notes = notes});
    const DatasetSplit* split = resolved.find(options.split);
    if (split == nullptr) {
        std::vector<std::string> names;
        for (const DatasetSplit& known : resolved.splits) names.push_back(known.name);
        throw Error(fmt::format("{} has no split \"{}\".", resolved.origin, options.split),
                    fmt::format("Set --split to one of: {}.", fmt::join(names, ", ")));
    }
    return std::make_shared<FileRows>(split->files, split->options);
}

void refuse_own_input(const TokenizeOptions& options, const FileRows& dataset,
                      const std::filesystem::path& output) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path place = fs::weakly_canonical(output, ignored);
    const auto refuse = [&](std::string_view what) {
        throw Error(fmt::format("The output {} {}.", output.string(), what), "Name another place for it.");
    };
    for (const fs::path& file : dataset.files()) {
        // Temporary files are written next to the output under other names.
        for (const char* suffix : {"", ".partial", ".lock", ".ends.partial"})
            if (fs::equivalent(output.string() + suffix, file, ignored))
                refuse(*suffix == '\0' ? fmt::format("is the input {}", file.string())
                                       : fmt::format("is written through {}{}, which is the input {}",
                                                     output.string(), suffix, file.string()));
        if (lies_inside(fs::weakly_canonical(file, ignored), place))
            refuse(fmt::format("holds the input {}", file.string()));
    }
    // With any other name, the output would not be data of the folder.
    const bool is_data = options.llama_version || known_format(output);
    if (is_data && fs::is_directory(options.dataset, ignored) &&
        lies_inside(place, fs::weakly_canonical(options.dataset, ignored)))
        refuse(fmt::format("would be a data file of the input folder {}", options.dataset));
}

void tokenize_corpus(const TokenizeOptions& options) {
    const std::filesystem::path output = options.output;
    if (std::filesystem::is_directory(output))
        throw Error(fmt::format("{} is a folder.", options.output), "Name an output file.");
    const std::shared_ptr<const FileRows> dataset = open_corpus(options);
    refuse_own_input(options, *dataset, output);
    // Two processes must not write the same file; the second one finds it complete.
    const FileLock lock(options.output + ".lock");
    if (std::filesystem::exists(output) && !options.overwrite)
        throw Error(fmt::format("{} exists.", options.output), "Use --overwrite, or name another file.");
    const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(options);
    const PackingOptions packing = packing_options(options, *tokenizer);
    TokenizeProgress progress;
    TokenStreamProgress last;
    write_token_file(output, *dataset, tokenizer, packing, options.threads,
                     [&](const TokenStreamProgress& now) { progress.show(last = now); });
    progress.finish(last);
}

void fill_cache(const TokenizeOptions& options) {
    const std::filesystem::path folder = default_cache_folder();
    const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(options);
    const PackingOptions packing = packing_options(options, *tokenizer);
    const std::shared_ptr<const RowDataset> dataset = open_corpus(options, cache_notes_folder(folder));
    TokenizeProgress progress;
    TokenStreamProgress last;
    const TokenCache::Entry entry =
        TokenCache(folder).get(*dataset, tokenizer, packing, options.threads, options.overwrite,
                               [&](const TokenStreamProgress& now) { progress.show(last = now); });
    if (entry.made) progress.finish(last);
    print_result("{} {}\n", entry.file.path().string(), entry.made ? "was made." : "was there.");
}

}  // namespace drover
