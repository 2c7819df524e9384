#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace drover {

struct BlockSizeChoice {
    std::int64_t block_size = 0;
    std::string warning;  ///< empty if there is none
};

/// run_clm's rule. Without `requested`: the tokenizer's model_max_length, or, if that exceeds the model's
/// positions, min(1024, max_positions) with a warning (1024 when max_positions ≤ 0). With it: at most
/// model_max_length, with a warning if it was lowered; the model's positions do not limit it. `max_positions`
/// is max_position_embeddings, 1024 for a model that has none.
/// UsageError for blocks of one token, in which there is nothing to predict.
BlockSizeChoice choose_block_size(std::optional<std::int64_t> requested, double model_max_length,
                                  std::int64_t max_positions);

/// Where unpacked rows are cut off. With `requested`, as choose_block_size. Without it, what both the
/// tokenizer and the model's positions allow (0, meaning no cut, if neither sets a limit).
BlockSizeChoice choose_longest_row(std::optional<std::int64_t> requested, double model_max_length,
                                   std::int64_t max_positions);

}  // namespace drover
