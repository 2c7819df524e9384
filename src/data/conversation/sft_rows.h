#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/conversation/row_maker.h"
#include "data/packing/token_cache.h"
#include "data/rows/row_source.h"

namespace drover {

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
