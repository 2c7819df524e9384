#pragma once

#include "backend/cuda/kernels/device_code.cuh"

namespace drover::cuda {

/// 1 − s and s: the weights of an exponential moving average.
struct Shares {
    float old, newest;

    __device__ explicit Shares(const float* scalars)
        : old(static_cast<float>(1 - static_cast<double>(scalars[StepScalar::newest_share]))),
          newest(scalars[StepScalar::newest_share]) {}

    __device__ float mean(float before, float now) const { return before * old + now * newest; }
};

}  // namespace drover::cuda
