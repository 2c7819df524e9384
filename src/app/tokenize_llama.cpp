#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/tokenize.h"
#include "app/tokenize_progress.h"
#include "core/console.h"
#include "core/error.h"
#include "data/datasets/arrow_tokens.h"
#include "data/packing/token_stream.h"

namespace drover {
namespace {

/// Removes an earlier result; anything else in its place is kept and makes the writer fail.
void remove_earlier(const std::filesystem::path& folder) {
    if (std::filesystem::exists(folder / "state.json") &&
        std::filesystem::exists(folder / "dataset_info.json"))
        std::filesystem::remove_all(folder);
}

}  // namespace

void tokenize_for_llama(const TokenizeOptions& options) {
    const int version = *options.llama_version;
    if (!options.tokenizer.empty() || options.block_size || options.packing != "hf")
        throw UsageError(
            "--llama-version fixes the tokenizer (that of the current folder), the block size and "
            "the packing.",
            "Leave --tokenizer, --block_size and --packing out, or use --output instead.");
    const std::filesystem::path folder =
        fmt::format("wikicorpus_llama{}_tokenized_{}", version, version == 3 ? "8k" : "4k");
    TokenizeOptions here = options;
    here.tokenizer = std::filesystem::current_path();
    const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(here);
    const double block_size = std::min(version == 3 ? 8192.0 : 4096.0, tokenizer->model_max_length());
    if (options.input.empty() && options.dataset.empty())
        throw UsageError("The corpus is not given.",
                         "Name it with --input raw.en.tgz (the raw English Wikicorpus) or --dataset.");
    const std::shared_ptr<const FileRows> dataset = open_corpus(options);
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
