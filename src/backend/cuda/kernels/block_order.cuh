#pragma once

#include <cstdint>

namespace drover::cuda {

/// This block's number in a grid of one dimension, counted from the end: for operations between two products.
/// A product writes and reads its rows from the first to the last, and a GPU starts blocks in order. So the
/// rows that were written last, which are still in the L2 cache, are read first, and those that the next
/// product reads first are written last.
__device__ inline std::uint32_t block_from_the_end() {
    return gridDim.x - 1 - blockIdx.x;
}

}  // namespace drover::cuda
