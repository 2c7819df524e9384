#pragma once

#include <vector>

#include "app/bench_options.h"
#include "core/batch.h"

namespace drover {

/// Options of `drover bench` for what its rows hold.
struct BenchData {
    double targets = 1;       ///< share of the positions with a label
    std::int64_t length = 0;  ///< mean of the examples' lengths; 0: rows are full
    bool packed = false;      ///< several examples in a row

    void add_to(const Command& command);

    /// Rows of uniformly random tokens. Steps cycle through them: a memorized batch has small gradients, on
    /// which a GPU draws less power and runs faster than in training. UsageError if `packed` has no lengths.
    std::vector<Batch> batches(const BenchShape& shape, std::int64_t vocab_size) const;
};

/// The length of the sequence that a token is in, on average: attention's FLOP are those of rows this long.
double mean_length_around_tokens(const std::vector<Batch>& batches);

}  // namespace drover
