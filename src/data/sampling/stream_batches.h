#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/rows/token_row.h"

namespace drover {

struct StreamDealing {
    std::int64_t batch_size = 8;  ///< of a rank
    std::int64_t ranks = 1;
    std::int64_t rank = 0;
};

/// Batches of a stream of rows, in order, dealt as in accelerate's IterableDatasetShard: of every ranks ·
/// batch_size rows, rank r gets the r-th batch_size. The last round is filled up from the first one; a single
/// rank's last batch is simply shorter. Memory: two rounds of rows.
class StreamBatches {
  public:
    using NextRow = std::function<bool(TokenRow& row)>;

    /// UsageError for batches of less than one row.
    StreamBatches(NextRow next_row, StreamDealing dealing);

    /// Replaces `batch` by this rank's next rows; false at the end.
    bool next(std::vector<TokenRow>& batch);
    /// How many rows at the end of that batch are only filler.
    std::int64_t filler() const { return filler_; }
    /// How many rows all ranks together get in that round, without filler.
    std::int64_t rows_of_all() const { return rows_of_all_; }

  private:
    NextRow next_row_;
    StreamDealing dealing_;
    bool ended_ = false;
    std::int64_t filler_ = 0, rows_of_all_ = 0;
    std::vector<TokenRow> first_round_, rows_;
};

}  // namespace drover
