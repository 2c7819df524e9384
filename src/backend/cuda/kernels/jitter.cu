#include "backend/cuda/kernels/eight_elements.cuh"
#include "backend/cuda/kernels/leaf_noise.cuh"

namespace drover::cuda {
namespace {

constexpr int jitter_threads = 256;

/// How noise acts on an element: it is lowest + per_unit · (the word's lower 24 bits).
struct Noise {
    float lowest, per_unit;
    bool added;

    __device__ float on(float before, std::uint32_t word) const {
        const float noise = fmaf(per_unit, static_cast<float>(word & 0xFFFFFFu), lowest);
        return added ? before + noise : before * noise;
    }
};

template <class T>
__global__ void jitter_elements(T* x, std::int64_t count, bool wide, LeafNoise place, std::uint64_t seed,
                                const float* scalars, Noise noise) {
    const std::int64_t at = (std::int64_t{blockIdx.x} * jitter_threads + threadIdx.x) * 8;
    const LeafWords words(place, seed, scalars[StepScalar::step]);
    if (wide && at + 8 <= count) {
        const Eight<T> loaded = load_eight(x + at);
        std::uint32_t drawn[8];
        words.draw_eight(at, drawn);
        float values[8];
        to_floats(loaded, values);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = noise.on(values[e], drawn[e]);
        store_eight(x + at, to_eight<T>(values));
    } else {
        const std::int64_t end = at + 8 < count ? at + 8 : count;
        for (std::int64_t i = at; i < end; ++i)
            x[i] = from_float<T>(noise.on(to_float(x[i]), words.draw_one(i)));
    }
}

}  // namespace

void jitter_tokens(const Launch& launch, const JitterTokens& op) {
    const std::int64_t count = op.x.numel();
    if (count == 0) return;
    const LeafPlace place{.leaf = op.leaf, .row_begin = op.first_token, .columns = op.x.size(1)};
    const Noise noise{.lowest = (op.added ? 0.f : 1.f) - op.amplitude,
                      .per_unit = 2.f * op.amplitude * 0x1p-24f,
                      .added = op.added};
    const bool wide = reinterpret_cast<std::uintptr_t>(op.x.raw()) % 16 == 0;
    with_floating(op.x.dtype(), [&]<class T>() {
        jitter_elements<<<ceil_div(count, jitter_threads * 8), jitter_threads, 0, launch.stream>>>(
            elements<T>(op.x), count, wide, LeafNoise(place, op.x), op.seed,
            elements<const float>(op.scalars), noise);
    });
    check_launch("jitter_tokens");
}

}  // namespace drover::cuda
