#pragma once

#include "backend/cpu/kernels/vector_math.h"

/// The largest magnitudes that the scales of FP8 tensors are made of (ops/fp8.h).
namespace drover::cpu::DROVER_ISA {

/// The bits of |x|. Their order is that of integers, with NaN above all numbers.
[[gnu::always_inline]] inline Ints magnitude_bits(Floats x) {
    return bits_as<Ints>(bits_as<Words>(x) & 0x7FFFFFFFu);
}

/// The largest of a row's.
template <class T>
inline std::int32_t largest_bits(const T* row, std::int64_t width) {
    Ints most = {};
    for_each_vector(width, [&](auto at) {
        const Ints bits = magnitude_bits(load(row, at));
        most = bits > most ? bits : most;
    });
    std::int32_t largest = 0;
    for (int i = 0; i < lanes; ++i) largest = most[i] > largest ? most[i] : largest;
    return largest;
}

/// Raises `maximum` to the largest magnitude of a row. The result does not depend on the order of the rows.
template <class T>
inline void raise_to_row(float* maximum, const T* row, std::int64_t width) {
    const std::int32_t largest = largest_bits(row, width);
    auto* const bits = reinterpret_cast<std::int32_t*>(maximum);
    std::int32_t old = __atomic_load_n(bits, __ATOMIC_RELAXED);
    while (old < largest &&
           !__atomic_compare_exchange_n(bits, &old, largest, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

}  // namespace drover::cpu::DROVER_ISA
