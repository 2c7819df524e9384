#include "backend/cpu/peaks.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/amx/peak_loop.h"
#include "core/arena.h"
#include "core/stopwatch.h"

namespace drover::cpu {
namespace {

/// The best of short tries, because other programs may take the processor away from any of them.
constexpr int tries = 8;

/// The best rate of work(), which returns how many operations it made.
template <class Work>
double flops_per_second(const Work& work) {
    double best = 0;
    for (int i = 0; i < tries; ++i) {
        const Stopwatch watch;
        const double flops = work();
        best = std::max(best, flops / watch.seconds());
    }
    return best;
}

double vector_flops_per_second(const Kernels& kernels, DType arithmetic) {
    return flops_per_second([&] {
        double flops = 0;
        kernels.peak_loop({.arithmetic = arithmetic, .repetitions = 1'000'000, .flops = &flops});
        return flops;
    });
}

double copied_bytes_per_second() {
    constexpr std::int64_t bytes_per_thread = std::int64_t{1} << 26;
    const std::int64_t bytes = bytes_per_thread * omp_get_max_threads();
    const MemoryBlock from = allocate_host_memory(static_cast<std::size_t>(bytes));
    const MemoryBlock to = allocate_host_memory(static_cast<std::size_t>(bytes));
    const auto on_every_thread = [&](const auto& work) {
#pragma omp parallel for schedule(static)
        for (std::int64_t begin = 0; begin < bytes; begin += bytes_per_thread)
            work(static_cast<char*>(from.get()) + begin, static_cast<char*>(to.get()) + begin);
    };
    // Pages that were only read are all one page of zeros.
    on_every_thread([](char* source, char* target) {
        std::memset(source, 1, bytes_per_thread);
        std::memset(target, 2, bytes_per_thread);
    });
    double best = 0;
    for (int i = 0; i < tries; ++i) {
        const Stopwatch watch;
        on_every_thread(
            [](const char* source, char* target) { std::memcpy(target, source, bytes_per_thread); });
        best = std::max(best, 2 * static_cast<double>(bytes) / watch.seconds());
    }
    return best;
}

}  // namespace

MachinePeaks measure_peaks(const Kernels& kernels, bool has_bf16_products,
                           std::optional<amx::TileUnit> matrix_unit) {
    MachinePeaks peaks;
    peaks.fp32_flops = vector_flops_per_second(kernels, DType::f32);
    if (matrix_unit == amx::TileUnit::hardware)
        peaks.bf16_flops = flops_per_second([] { return amx::peak_loop(200'000); });
    else
        peaks.bf16_flops =
            has_bf16_products ? vector_flops_per_second(kernels, DType::bf16) : peaks.fp32_flops;
    peaks.bandwidth = copied_bytes_per_second();
    return peaks;
}

}  // namespace drover::cpu
