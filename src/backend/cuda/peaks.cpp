#include "backend/cuda/peaks.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "backend/cuda/cuda_error.h"

namespace drover::cuda {
namespace {

/// Seconds of one call, the best of several.
double best_seconds(cudaStream_t stream, const std::function<void()>& call) {
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "an event cannot be made");
    check(cudaEventCreate(&end), "an event cannot be made");
    call();
    float best = 1e30f;
    for (int i = 0; i < 8; ++i) {
        check(cudaEventRecord(begin, stream), "an event");
        call();
        check(cudaEventRecord(end, stream), "an event");
        check(cudaEventSynchronize(end), "a measured operation");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin, end), "an event");
        best = std::min(best, milliseconds);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return static_cast<double>(best) / 1000;
}

struct DeviceMemory {
    explicit DeviceMemory(std::size_t bytes) {
        check(cudaMalloc(&memory, bytes), "the measurement of its peaks");
    }
    ~DeviceMemory() { cudaFree(memory); }
    void* memory = nullptr;
};

}  // namespace

double rated_bf16_flops(std::string_view gpu) {
    struct Rating {
        std::string_view part;
        double flops;
    };
    // Dense, at the boost clock of the SXM boards.
    constexpr Rating ratings[] = {
        {"H200", 989.4e12}, {"H100", 989.4e12}, {"GH200", 989.4e12}, {"A100", 312e12}};
    for (const Rating& rating : ratings)
        if (gpu.find(rating.part) != std::string_view::npos) return rating.flops;
    return 0;
}

MachinePeaks measure_peaks(const Launch& launch, GemmEngine& gemm) {
    constexpr std::int64_t side = 8192;
    constexpr std::size_t elements = static_cast<std::size_t>(side * side);
    constexpr std::size_t matrix_bytes = elements * 2;  // in bf16; fp32 products are of half the side
    const DeviceMemory memory(3 * matrix_bytes);
    auto* bytes = static_cast<std::byte*>(memory.memory);
    const auto matrix = [&](DType dtype, std::size_t index, std::int64_t size) {
        return Tensor(bytes + index * matrix_bytes, dtype, {size, size}, Device::cuda);
    };
    const auto product_rate = [&](DType dtype, std::int64_t size) {
        const Tensor a = matrix(dtype, 0, size), b = matrix(dtype, 1, size), c = matrix(dtype, 2, size);
        for (const Tensor& operand : {a, b}) {
            fill(launch, Fill{.x = operand, .value = 1});
            const float scalars[StepScalar::count] = {};
            const Tensor on_device(bytes + 2 * matrix_bytes, DType::f32, {StepScalar::count}, Device::cuda);
            check(cudaMemcpyAsync(on_device.raw(), scalars, sizeof(scalars), cudaMemcpyHostToDevice,
                                  launch.stream),
                  "an upload");
            jitter_tokens(
                launch,
                JitterTokens{.x = operand, .scalars = on_device, .amplitude = 1, .seed = 1, .leaf = 1});
        }
        const Gemm product{.a = a, .b = b, .c = c, .transpose_b = true};
        const double seconds = best_seconds(launch.stream, [&] { gemm.run(launch, product); });
        return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) /
               seconds;
    };
    const double copy_seconds = best_seconds(launch.stream, [&] {
        check(cudaMemcpyAsync(bytes + matrix_bytes, bytes, matrix_bytes, cudaMemcpyDeviceToDevice,
                              launch.stream),
              "a copy");
    });
    return {.fp32_flops = product_rate(DType::f32, side / 2),
            .bf16_flops = product_rate(DType::bf16, side),
            .bandwidth = 2.0 * static_cast<double>(matrix_bytes) / copy_seconds};
}

}  // namespace drover::cuda
