#pragma once

#include <cstdint>

/// How kernels cut their work: into pieces whose size follows from the problem alone, never from the number
/// of threads.
namespace drover::cpu::DROVER_ISA {

/// Elements that are worth handing to another thread.
inline constexpr std::int64_t elements_per_task = 16384;

/// Calls body(begin, end) for consecutive ranges of `step` of [0, count), on all threads.
template <class Body>
inline void for_each_range(std::int64_t count, std::int64_t step, const Body& body) {
    const std::int64_t tasks = (count + step - 1) / step;
#pragma omp parallel for schedule(static) if (tasks > 1)
    for (std::int64_t task = 0; task < tasks; ++task) {
        const std::int64_t begin = task * step;
        body(begin, begin + step < count ? begin + step : count);
    }
}

/// Calls body(row) for every row of a matrix with `width` columns, on all threads.
template <class Body>
inline void for_each_row(std::int64_t rows, std::int64_t width, const Body& body) {
    const std::int64_t step = width < elements_per_task ? elements_per_task / (width > 0 ? width : 1) : 1;
    for_each_range(rows, step, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) body(row);
    });
}

}  // namespace drover::cpu::DROVER_ISA
