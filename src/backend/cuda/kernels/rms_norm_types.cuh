#pragma once

#include <algorithm>

#include "backend/cuda/kernels/eight_elements.cuh"

/// Shared by the norm's two kernels: their types, and how a row is spread over threads.
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

/// The most threads of a team, which processes one row.
inline constexpr int most_threads = 512;

/// Calls body<held>(threads): how many eights of a row of `width` each thread of a team holds, and how many
/// threads that is, a power of two from 32 on; 0 and a full team for rows that are not held. A team is as
/// small as `most_held` eights per thread allow, because the threads of a row wait for each other; only the
/// largest teams hold up to four.
template <class Body>
void with_team(bool wide, std::int64_t width, int most_held, const Body& body) {
    const std::int64_t eights = width / 8;
    int threads = 32;
    while (threads < most_threads && eights > most_held * threads) threads *= 2;
    const std::int64_t held = ceil_div(eights, threads);
    if (!wide || held == 0 || held > 4) return body.template operator()<0>(most_threads);
    if (held == 1) return body.template operator()<1>(threads);
    if (held == 2) return body.template operator()<2>(threads);
    if (held == 3) return body.template operator()<3>(threads);
    return body.template operator()<4>(threads);
}

}  // namespace drover::cuda
