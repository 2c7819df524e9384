#include <algorithm>

#include "backend/cuda/kernels/bias_rows.h"
#include "backend/cuda/kernels/device_code.cuh"

namespace drover::cuda {
namespace {

template <class Result, class Bias>
__global__ void add_bias_rows(Result* c, std::int64_t stride, const float* product, const Bias* bias,
                              std::int64_t rows, std::int64_t columns, bool accumulate) {
    const std::int64_t all = rows * columns, step = std::int64_t{gridDim.x} * blockDim.x;
    for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all; i += step) {
        const std::int64_t row = i / columns, column = i - row * columns;
        Result& at = c[row * stride + column];
        float sum = bias != nullptr ? to_float(bias[column]) : 0;
        if (product != nullptr) sum += product[i];
        if (accumulate) sum += to_float(at);
        at = from_float<Result>(sum);
    }
}

}  // namespace

void bias_rows(const Launch& launch, const Tensor& c, const Tensor& product, const Tensor& bias,
               bool accumulate) {
    if (c.numel() == 0) return;
    constexpr int threads = 256;
    const std::int64_t blocks =
        std::min(ceil_div(c.numel(), threads), std::int64_t{launch.gpu.multiprocessors} * 32);
    with_floating(c.dtype(), [&]<class Result>() {
        with_floating(bias ? bias.dtype() : DType::f32, [&]<class Bias>() {
            add_bias_rows<<<static_cast<unsigned>(blocks), threads, 0, launch.stream>>>(
                elements<Result>(c), c.stride(0), elements<const float>(product), elements<const Bias>(bias),
                c.size(0), c.size(1), accumulate);
        });
    });
    check_launch("bias");
}

}  // namespace drover::cuda
