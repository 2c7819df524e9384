#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

struct StreamDealing {
    std::int64_t batch_size = 8;  ///< of a rank; with split_batches of all ranks together
    std::int64_t ranks = 1;
    std::int64_t rank = 0;
    bool drop_last = false;
    bool split_batches = false;
};

/// Batches of a stream of rows, in order, dealt as accelerate's IterableDatasetShard does it: of every
/// ranks · batch_size rows, rank r gets the r-th batch_size. The last round is filled up from the first one,
/// or dropped with drop_last; a single rank's last batch is just shorter. Memory: two rounds of rows.
class StreamBatches {
  public:
    using NextRow = std::function<bool(std::vector<TokenId>& row)>;

    /// UsageError when split_batches cannot cut the batch evenly.
    StreamBatches(NextRow next_row, StreamDealing dealing);

    /// Replaces `batch` by this rank's next rows; false at the end.
    bool next(std::vector<std::vector<TokenId>>& batch);
    /// How many rows at the front of that batch are there for the first time.
    std::int64_t fresh() const { return fresh_; }
    /// The same over the batches that all ranks get at that time.
    std::int64_t fresh_of_all() const { return fresh_of_all_; }

  private:
    NextRow next_row_;
    StreamDealing dealing_;
    std::size_t round_, part_;
    bool ended_ = false;
    std::int64_t fresh_ = 0, fresh_of_all_ = 0;
    std::vector<std::vector<TokenId>> first_round_, rows_;
};

}  // namespace drover
