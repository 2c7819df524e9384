#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/rows/training_rows.h"
#include "text/tokenizer.h"

namespace drover {

/// run_clm maps over this many rows at a time; the blocks depend on it.
inline constexpr std::int64_t rows_per_group = 1000;

/// Cuts ids into rows. Under hf, a group ends at each call of end_group; under the others end_group does
/// nothing. Ids are held only until a block is full, so memory does not grow with the group.
class Packer {
  public:
    using Sink = std::function<void(std::span<const TokenId> row)>;

    /// `block_size` is at least 1. Under Packing::none it is the length that rows are cut to, or 0.
    Packer(Packing packing, std::int64_t block_size, Sink sink);

    /// One row of text.
    void add(std::span<const TokenId> ids);
    void end_group();
    /// The end of the corpus. Under lossless, the remaining ids become a last, shorter row: no token is
    /// dropped or added. (Collators pad that row and ignore the padding.)
    void finish();

    /// Tokens dropped so far, that is, in no row.
    std::int64_t dropped() const { return dropped_; }

  private:
    Packing packing_;
    std::size_t block_size_;
    Sink sink_;
    std::vector<TokenId> open_block_;
    std::int64_t dropped_ = 0;
};

/// Where groups end when `rows` rows are mapped by `workers` processes, as in `datasets`: contiguous shards
/// whose sizes differ by at most one, the larger ones first; never more shards than rows; each shard starts a
/// new group.
class Groups {
  public:
    /// `rows` is not used when `workers` is 1 and may then be any number.
    Groups(std::int64_t rows, std::int64_t workers);

    /// Rows from `row` to the end of its group; row ≥ 0.
    std::int64_t left_in_group(std::int64_t row) const;

  private:
    std::int64_t shards_;
    std::int64_t small_size_ = 0;   ///< of the later shards
    std::int64_t large_count_ = 0;  ///< shards with one row more
};

}  // namespace drover
