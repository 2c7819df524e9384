#pragma once

#include "backend/cuda/kernels/eights.cuh"

/// What the norm's two kernels have in common: their types, and how a row is spread over a block.
namespace drover::cuda {

/// Calls body<Y, R, W>() with the types of y, residual and weight. The latter two are y's or f32.
template <class Body>
void with_norm_types(const Tensor& y, const Tensor& residual, const Tensor& weight, const Body& body) {
    const bool plain_residual = residual.dtype() == DType::f32, plain_weight = weight.dtype() == DType::f32;
    with_floating(y.dtype(), [&]<class Y>() {
        if (plain_residual && plain_weight) return body.template operator()<Y, float, float>();
        if constexpr (sizeof(Y) == 2) {
            if (plain_residual) return body.template operator()<Y, float, Y>();
            if (plain_weight) return body.template operator()<Y, Y, float>();
            return body.template operator()<Y, Y, Y>();
        }
    });
}

/// The most threads of a block whose threads hold so many eights of a row.
template <int held>
inline constexpr int most_threads = held == 1 ? 256 : 512;

inline constexpr int any_width_threads = 512;

/// Calls body<held>(threads): how many eights of a row of `width` each thread holds; 0 for rows that are not
/// held.
template <class Body>
void with_held(bool wide, std::int64_t width, const Body& body) {
    const auto threads = [width](int held) { return static_cast<int>(ceil_div(width, 8 * 32 * held) * 32); };
    if (!wide || width == 0 || threads(4) > most_threads<4>)
        return body.template operator()<0>(any_width_threads);
    if (threads(1) <= most_threads<1>) return body.template operator()<1>(threads(1));
    if (threads(2) <= most_threads<2>) return body.template operator()<2>(threads(2));
    return body.template operator()<4>(threads(4));
}

}  // namespace drover::cuda
