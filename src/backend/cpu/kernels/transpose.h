#pragma once

#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {

/// Transposes a square of vectors: each round interleaves the first half of them with the second.
[[gnu::always_inline]] inline void transpose_square(Floats (&x)[lanes]) {
    using Indices = Ints;
    Indices low, high;
    for (int i = 0; i < lanes; ++i) {
        low[i] = i / 2 + (i % 2) * lanes;
        high[i] = low[i] + lanes / 2;
    }
#pragma GCC unroll 4
    for (int round = 1; round < lanes; round *= 2) {
        Floats y[lanes];
#pragma GCC unroll 8
        for (int i = 0; i < lanes / 2; ++i) {
            y[2 * i] = __builtin_shuffle(x[i], x[i + lanes / 2], low);
            y[2 * i + 1] = __builtin_shuffle(x[i], x[i + lanes / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) x[i] = y[i];
    }
}

}  // namespace drover::cpu::DROVER_ISA
