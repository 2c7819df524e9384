#pragma once

#include <cmath>

/// src/backend/cuda/kernels/exponentials.cuh for the emulated GPU.
namespace drover::cuda {

inline constexpr float log2_of_e = 1.4426950408889634f;

inline float power_of_two(float x) {
    return std::exp2(x);
}

}  // namespace drover::cuda
