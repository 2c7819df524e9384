#include "backend/cpu/peaks.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/tiles/amx_peak_loop.h"
#include "core/arena.h"
#include "core/stopwatch.h"

namespace drover::cpu {
namespace {

/// The best of many tries. Each is well below a millisecond, so that some are not interrupted by other
/// programs.
template <class Try>
double best_rate(const Try& measure) {
    constexpr int tries = 50;
    double best = 0;
    for (int i = 0; i < tries; ++i) best = std::max(best, measure());
    return best;
}

double vector_flops_per_second(const Kernels& kernels, DType arithmetic) {
    return best_rate([&] {
        double rate = 0;
        kernels.peak_loop({.arithmetic = arithmetic, .repetitions = 150'000, .flops_per_second = &rate});
        return rate;
    });
}

double amx_flops_per_second() {
    return best_rate([] {
        const Stopwatch watch;
        const double flops = tiles::amx_peak_loop(30'000);
        return flops / watch.seconds();
    });
}

double copied_bytes_per_second() {
    constexpr int tries = 10;
    constexpr std::int64_t bytes_per_thread = std::int64_t{1} << 26;
    const std::int64_t bytes = bytes_per_thread * omp_get_max_threads();
    const MemoryBlock from = allocate_host_memory(static_cast<std::size_t>(bytes));
    const MemoryBlock to = allocate_host_memory(static_cast<std::size_t>(bytes));
    const auto on_every_thread = [&](const auto& work) {
#pragma omp parallel for schedule(static)
        for (std::int64_t begin = 0; begin < bytes; begin += bytes_per_thread)
            work(static_cast<char*>(from.get()) + begin, static_cast<char*>(to.get()) + begin);
    };
    // Pages that were never written are all the same zero page.
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

MachinePeaks measure_peaks(const Kernels& kernels, std::optional<tiles::TileUnit> bf16_tiles) {
    MachinePeaks peaks;
    peaks.fp32_flops = vector_flops_per_second(kernels, DType::f32);
    peaks.bf16_flops = peaks.fp32_flops;
    if (bf16_tiles == tiles::TileUnit::amx)
        peaks.bf16_flops = std::max(peaks.bf16_flops, amx_flops_per_second());
    else if (bf16_tiles)
        peaks.bf16_flops = std::max(peaks.bf16_flops, vector_flops_per_second(kernels, DType::bf16));
    peaks.bandwidth = copied_bytes_per_second();
    return peaks;
}

}  // namespace drover::cpu
