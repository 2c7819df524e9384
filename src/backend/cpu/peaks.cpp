#include "backend/cpu/peaks.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "core/arena.h"
#include "core/stopwatch.h"

namespace drover::cpu {
namespace {

double flops_per_second(const Kernels& kernels, DType arithmetic) {
    constexpr int tries = 50;
    constexpr std::int64_t repetitions = 150'000;  // well below a millisecond: some try is not interrupted
    double best = 0;
    for (int i = 0; i < tries; ++i) {
        double rate = 0;
        kernels.peak_loop({.arithmetic = arithmetic, .repetitions = repetitions, .flops_per_second = &rate});
        best = std::max(best, rate);
    }
    return best;
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

MachinePeaks measure_peaks(const Kernels& kernels, bool has_bf16_products) {
    MachinePeaks peaks;
    peaks.fp32_flops = flops_per_second(kernels, DType::f32);
    peaks.bf16_flops = peaks.fp32_flops;
    if (has_bf16_products)
        peaks.bf16_flops = std::max(peaks.fp32_flops, flops_per_second(kernels, DType::bf16));
    peaks.bandwidth = copied_bytes_per_second();
    return peaks;
}

}  // namespace drover::cpu
