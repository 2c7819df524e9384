#pragma once

#include "core/batch.h"
#include "core/range.h"

namespace drover {

/// Which part of every batch this replica takes, where replicas share batches: each its rows, in order.
struct ReplicaPart {
    std::int64_t replicas = 1;  ///< that share a batch; 1: batches are not shared
    std::int64_t replica = 0;   ///< which of them this is

    bool is_whole() const { return replicas == 1; }
    /// Rows that every replica takes of a batch, filler rows included.
    std::int64_t rows_of(std::int64_t batch_rows) const { return part_size(batch_rows, replicas); }
};

/// This replica's rows. Where the batch does not divide evenly, the last replicas' parts are filled up with
/// rows of no length and without labels, which no loss and no attention sees.
Batch take_part(Batch whole, const ReplicaPart& part);

}  // namespace drover
