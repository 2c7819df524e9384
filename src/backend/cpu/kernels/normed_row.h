#pragma once

#include "backend/cpu/kernels/vector_math.h"

/// One row of a norm: the whole hidden state of a token, or one of its heads.
namespace drover::cpu::DROVER_ISA {

template <class R>
inline float sum_of_row_squares(const R* residual, std::int64_t width) {
    Floats squares = {};
    for_each_vector(width, [&](auto at) {
        const Floats value = load(residual, at);
        squares += value * value;
    });
    return sum_of_lanes(squares);
}

inline float rstd_of(float squares, std::int64_t width, float eps) {
    return 1.f / __builtin_sqrtf(squares / static_cast<float>(width) + eps);
}

/// y = round(residual · rstd) · weight; y may be the residual itself.
template <class R, class W, class Y>
inline void normalise(const R* residual, const W* weight, float rstd, Y* y, std::int64_t width) {
    for_each_vector(
        width, [&](auto at) { store(y, at, rounded_to<R>(load(residual, at) * rstd) * load(weight, at)); });
}

}  // namespace drover::cpu::DROVER_ISA
