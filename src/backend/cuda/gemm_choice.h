#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <span>

namespace drover::cuda {

/// A product [m,n] = op(a) · op(b) with sums of length k, as far as it matters for the choice of an
/// algorithm.
struct ProductShape {
    bool transpose_a, transpose_b;
    std::int64_t n, k;
};

/// Which of cuBLASLt's candidates (its best guess first) to take. The library guesses for a cool GPU; in a
/// training step the power limit sets the clock, and there its tiles of 192 × 192 and 320 × 128 lose to
/// narrower ones, as 256 × 128 does where sums are short (measured, bench/h200.md). A function of shape and
/// candidates alone, so that every run gives the same bits.
std::size_t chosen_candidate(std::span<const cublasLtMatmulHeuristicResult_t> candidates,
                             const ProductShape& shape);

}  // namespace drover::cuda
