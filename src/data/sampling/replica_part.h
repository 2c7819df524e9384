#pragma once

#include "core/batch.h"
#include "core/range.h"

namespace drover {

/// Which rows of every batch this replica takes, if replicas share batches. Parts are contiguous and in
/// replica order.
struct ReplicaPart {
    std::int64_t replicas = 1;  ///< sharing a batch; 1: batches are not shared
    std::int64_t replica = 0;   ///< index of this replica

    bool is_whole() const { return replicas == 1; }
    /// Rows of a batch that every replica takes, filler rows included.
    std::int64_t rows_of(std::int64_t batch_rows) const { return part_size(batch_rows, replicas); }
};

/// This replica's rows. If the batch does not divide evenly, the last replicas' parts are padded with rows of
/// length 0 without labels, which neither loss nor attention sees.
Batch take_part(Batch whole, const ReplicaPart& part);

}  // namespace drover
