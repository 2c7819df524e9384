#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/conversation/example_tokenizer.h"
#include "data/packing/token_cache.h"
#include "data/rows/row_source.h"

namespace drover {

/// What became of the examples of a dataset.
struct SftReport {
    std::int64_t examples = 0;
    std::int64_t rows = 0;
    std::int64_t tokens = 0;         ///< in rows
    std::int64_t labels = 0;         ///< tokens of rows that are learned
    std::int64_t cut = 0;            ///< examples that were too long
    std::int64_t dropped = 0;        ///< examples in which nothing was left to learn
    std::int64_t first_dropped = 0;  ///< the number of the first of them, from 1
    std::int64_t lost = 0;           ///< prompts whose ids do not begin those of prompt and completion
    std::int64_t first_lost = 0;
    std::string lost_prompt{};  ///< the end of the first of them that is not in the example

    std::string to_text() const;
    /// Nothing is known if the text is not one.
    static SftReport from_text(const std::string& text);
    /// Sentences that the user should read; `split` begins each.
    std::vector<std::string> warnings(std::string_view split, const SftOptions& options) const;
};

/// Everything that determines the rows of write_sft_file(), as a file name without suffix.
std::string sft_cache_key(const RowDataset& dataset, const ExampleTokenizer& tokenizer,
                          const SftOptions& options);

/// Tokenizes the examples of `dataset`, whose rows are JSON objects, into a token file with labels and
/// documents, packed or not. The result does not depend on `threads`. Memory: a thousand examples, and two
/// bits per token. To shuffle, files beside `path` hold the examples and rows in their first order, and
/// memory their numbers. Error, with the number of the row, for a row that is refused; Error if nothing is
/// left.
SftReport write_sft_file(const std::filesystem::path& path, const RowDataset& dataset, ExampleFormat format,
                         const ExampleTokenizer& examples, const Tokenizer& tokenizer,
                         const SftOptions& options, std::size_t threads);

}  // namespace drover
