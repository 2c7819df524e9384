#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/packing/packing.h"
#include "data/rows/row_source.h"
#include "text/tokenizer.h"

namespace drover {

struct PackingOptions {
    Packing packing = Packing::hf;
    /// Tokens per block. Under Packing::none, the length at which rows are cut off; 0: rows are not cut.
    std::int64_t block_size = 1024;
    /// preprocessing_num_workers: under hf the blocks depend on it, under the other packings they do not.
    std::int64_t workers = 1;
    /// Stop after this many rows (max_train_samples, max_eval_samples).
    std::optional<std::int64_t> max_rows;
};

/// How far a TokenStream has read.
struct TokenStreamProgress {
    std::int64_t text_rows = 0;
    std::int64_t text_bytes = 0;
    std::int64_t tokens = 0;  ///< made from the text, before anything is dropped
    std::int64_t rows = 0;    ///< given out
    std::int64_t dropped = 0;
};

/// Rows of text (or of token ids) → token ids → rows to train on, in order. One thread reads, `threads`
/// threads tokenize, and the caller packs as it takes rows. The result depends only on the options, never on
/// `threads`. Memory is bounded: a few pieces per thread, each of about 128 KiB of text (or of one row, if a
/// row is longer).
class TokenStream {
  public:
    /// `dataset` must outlive the stream. Its rows are counted first when options.workers > 1 under hf.
    TokenStream(const RowDataset& dataset, std::shared_ptr<const Tokenizer> tokenizer, PackingOptions options,
                std::size_t threads);
    ~TokenStream();
    TokenStream(TokenStream&&) noexcept;

    /// Replaces `row` by the next one; false at the end. Rethrows what reading or tokenizing threw.
    bool next(std::vector<TokenId>& row);

    const TokenStreamProgress& progress() const;

  private:
    class State;
    std::unique_ptr<State> state_;
};

/// Number of tokenizing threads if the user gives none: one per processor.
std::size_t default_tokenize_threads();

}  // namespace drover
