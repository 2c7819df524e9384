#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "core/dtype.h"

namespace drover::cuda {

/// The copy engine's view of memory: three dimensions, the innermost one contiguous.
struct TensorMapShape {
    void* start;
    std::array<std::int64_t, 3> sizes;
    std::array<std::int64_t, 2> byte_strides;  ///< of the second and third dimension, multiples of 16
    std::array<std::int64_t, 2> box;  ///< of a copy in the first two dimensions: 128 bytes, at most 256
};

/// For copies whose rows of 128 bytes are laid out in shared memory as products of a warpgroup read them. The
/// dtype is bf16, f16 or f8.
CUtensorMap make_tensor_map(DType dtype, const TensorMapShape& shape);

}  // namespace drover::cuda
