#pragma once

#include "data/sampling/collator.h"

namespace drover {

/// A batch that replicas share: each takes its part of the rows, in order.
struct BatchShare {
    std::int64_t parts = 1;
    std::int64_t part = 0;

    /// Rows of a part of a batch; as many on every replica.
    std::int64_t rows_of(std::int64_t batch_rows) const { return (batch_rows + parts - 1) / parts; }
    /// How many of those are rows of the batch; the others fill up.
    std::int64_t fresh_of(std::int64_t batch_rows) const;
};

/// This part's rows. Where the batch does not divide evenly, the last parts are filled up with rows of no
/// length and without labels, which no loss and no attention sees.
LabelledBatch share_of(const LabelledBatch& batch, const BatchShare& share);

}  // namespace drover
