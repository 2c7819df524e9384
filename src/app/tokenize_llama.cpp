#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "app/tokenize.h"
#include "app/tokenize_progress.h"
#include "args/argument_value.h"
#include "core/console.h"
#include "core/error.h"
#include "data/datasets/arrow_tokens.h"
#include "data/packing/token_stream.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Error, naming what is missing, if the current folder has no tokenizer; a line if files beside it are
/// missing.
void check_tokenizer_files(int version) {
    const std::vector<std::string> expected =
        version == 3
            ? std::vector<std::string>{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
            : std::vector<std::string>{"tokenizer.model"};
    std::vector<std::string> missing;
    for (const std::string& name : expected)
        if (!fs::exists(name)) missing.push_back(name);
    if (missing.empty()) return;
    if (!fs::exists("tokenizer.json") && !fs::exists("tokenizer.model"))
        throw Error(fmt::format("The current folder, {}, has no tokenizer: {} {} missing.",
                                fs::current_path().string(), fmt::join(missing, ", "),
                                missing.size() == 1 ? "is" : "are"),
                    "Copy the files of the model's tokenizer there, or start the command where they are.");
    if (version == 3)
        print_log(stderr, "drover: The tokenizer of the current folder is read without {}.\n",
                  fmt::join(missing, ", "));
}

/// The corpus that is named, or else the one that the original downloads, if a cache has it.
std::shared_ptr<const FileRows> open_llama_corpus(TokenizeOptions options) {
    if (!options.input.empty() || !options.dataset.empty()) return open_corpus(options);
    options.dataset = "wikicorpus";
    options.dataset_config_name = "raw_en";
    try {
        return open_corpus(options);
    } catch (const Error& error) {
        throw Error(fmt::format("No corpus is given, and the raw English Wikicorpus is in no cache. {}",
                                error.cause()),
                    "Download raw.en.tgz (https://www.cs.upc.edu/~nlp/wikicorpus/raw.en.tgz) and name it "
                    "with --input, "
                    "or name other files with --input or --dataset.");
    }
}

/// Removes an earlier result; anything else in its place is kept and makes the writer fail.
void remove_earlier(const fs::path& folder) {
    if (fs::exists(folder / "state.json") && fs::exists(folder / "dataset_info.json")) fs::remove_all(folder);
}

}  // namespace

void tokenize_for_llama(const TokenizeOptions& options) {
    const int version = *options.llama_version;
    if (!options.tokenizer.empty() || options.block_size || options.packing != "hf")
        throw UsageError(
            "--llama-version fixes the tokenizer (that of the current folder), the block size and "
            "the packing.",
            "Leave --tokenizer, --block_size and --packing out, or leave --llama-version out.");
    const fs::path folder = options.output.empty()
                                ? with_home(fmt::format("~/examples_datasets/wikicorpus_llama{}_tokenized_{}",
                                                        version, version == 3 ? "8k" : "4k"))
                                : options.output;
    check_tokenizer_files(version);
    TokenizeOptions here = options;
    here.tokenizer = fs::current_path();
    const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(here);
    const double block_size = std::min(version == 3 ? 8192.0 : 4096.0, tokenizer->model_max_length());
    const std::shared_ptr<const FileRows> dataset = open_llama_corpus(options);
    refuse_own_input(options, *dataset, folder);
    if (options.overwrite) remove_earlier(folder);

    TokenStream stream(*dataset, tokenizer,
                       {.block_size = static_cast<std::int64_t>(block_size),
                        .workers = options.workers,
                        .max_rows = options.max_samples},
                       options.threads);
    TokenizeProgress progress;
    std::vector<TokenId> block;
    const std::int64_t blocks = write_arrow_token_dataset(folder, [&]() -> std::span<const std::int32_t> {
        if (!stream.next(block)) block.clear();
        progress.show(stream.progress());
        return block;
    });
    progress.finish(stream.progress());
    print_result("{} blocks of {} tokens are in {}.\n", blocks, block_size, folder.string());
}

}  // namespace drover
