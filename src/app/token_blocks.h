#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "model/batch.h"

namespace drover {

/// A corpus of token ids cut into blocks of equal length; the last twentieth of them is held out from
/// training.
class TokenBlocks {
  public:
    /// Reads `input_ids` (u16 or i32, one dimension) of a safetensors file. Error when an id is not below
    /// vocab_size or there are too few tokens for two blocks.
    TokenBlocks(const std::filesystem::path& file, std::int64_t block_size, std::int64_t vocab_size);

    std::int64_t training() const { return training_; }
    std::int64_t held_out() const { return blocks_ - training_; }

    /// Batch `number` of a run: each epoch visits the training blocks in the order that PyTorch's sampler
    /// gives for seed + epoch, and drops the last short batch.
    TokenBatch training_batch(std::int64_t number, std::int64_t rows, std::uint64_t seed) const;
    /// Up to `rows` held-out blocks from `first` on, in order.
    TokenBatch held_out_batch(std::int64_t first, std::int64_t rows) const;

  private:
    TokenBatch batch_of(const std::vector<std::int64_t>& blocks) const;

    std::int64_t block_size_;
    std::int64_t blocks_ = 0;
    std::int64_t training_ = 0;
    std::vector<std::int32_t> ids_;
};

}  // namespace drover
