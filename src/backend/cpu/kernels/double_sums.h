#pragma once

#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {

/// Σ value(x[i]) in f64 over packed elements; `value` maps Doubles to Doubles and zero to zero. The elements
/// are cut into at most 256 slices by their number alone, and the slices' sums are added in order.
template <class T, class Value>
inline double sum_in_double(const T* x, std::int64_t count, const Value& value) {
    constexpr std::int64_t max_slices = 256;
    const std::int64_t share = (count + max_slices - 1) / max_slices;
    const std::int64_t step = share > elements_per_task ? share : elements_per_task;
    double slices[max_slices] = {};
    for_each_range(count, step, [&](std::int64_t begin, std::int64_t end) {
        Doubles low = {}, high = {};
        for_each_vector(end - begin, [&](auto at) {
            const Floats values = load(x + begin, at);
            typedef float HalfFloats __attribute__((vector_size(2 * lanes)));
            HalfFloats halves[2];
            __builtin_memcpy(halves, &values, sizeof values);
            low += value(__builtin_convertvector(halves[0], Doubles));
            high += value(__builtin_convertvector(halves[1], Doubles));
        });
        slices[begin / step] = sum_of_lanes(low + high);
    });
    double total = 0;
    for (std::int64_t slice = 0; slice * step < count; ++slice) total += slices[slice];
    return total;
}

}  // namespace drover::cpu::DROVER_ISA
