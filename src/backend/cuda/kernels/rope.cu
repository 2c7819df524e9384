#include "backend/cuda/kernels/block_order.cuh"
#include "backend/cuda/kernels/early_launch.cuh"
#include "backend/cuda/kernels/eight_elements.cuh"

namespace drover::cuda {
namespace {

constexpr int rope_threads = 128;
/// Heads that one thread rotates by the same angles.
constexpr int heads_per_thread = 4;

__device__ inline void rotate(float& low, float& high, float cosine, float sine) {
    const float a = low, b = high;
    low = a * cosine - b * sine;
    high = b * cosine + a * sine;
}

/// The angles of a position.
struct Angles {
    const float *cosine, *sine;
    std::int64_t cosine_stride, sine_stride;

    __device__ const float* cosines(std::int32_t position) const { return cosine + position * cosine_stride; }
    __device__ const float* sines(std::int32_t position) const { return sine + position * sine_stride; }
};

/// The elements are loaded before the angles, which have to wait for the position.
template <class T>
__device__ void rotate_eights(T* low, std::int64_t pairs, std::int64_t head_stride, int heads,
                              const Angles& angles, const std::int32_t* position, std::int64_t pair,
                              float direction) {
    const std::int32_t at = *position;
    Eight<T> lows[heads_per_thread], highs[heads_per_thread];
#pragma unroll
    for (int h = 0; h < heads_per_thread; ++h)
        if (h < heads) {
            lows[h] = load_eight(low + h * head_stride);
            highs[h] = load_eight(low + h * head_stride + pairs);
        }
    __syncwarp();  // or the compiler would move what follows before the loads
    float c[8], s[8];
    to_floats(load_eight(angles.cosines(at) + pair), c);
    to_floats(load_eight(angles.sines(at) + pair), s);
#pragma unroll
    for (int h = 0; h < heads_per_thread; ++h)
        if (h < heads) {
            float a[8], b[8];
            to_floats(lows[h], a);
            to_floats(highs[h], b);
#pragma unroll
            for (int e = 0; e < 8; ++e) rotate(a[e], b[e], c[e], s[e] * direction);
            store_eight(low + h * head_stride, to_eight<T>(a));
            store_eight(low + h * head_stride + pairs, to_eight<T>(b));
        }
}

/// A thread has a token, some heads, and eight pairs of each (one pair where heads are not aligned).
template <class T, bool wide>
__global__ void __launch_bounds__(rope_threads)
    rotate_tokens(T* x, const Angles angles, const std::int32_t* positions, std::uint32_t items,
                  std::uint32_t groups_of_pairs, std::uint32_t groups_of_heads, int heads, std::int64_t pairs,
                  std::int64_t token_stride, std::int64_t head_stride, float direction) {
    const std::uint32_t item = block_from_the_end() * rope_threads + threadIdx.x;
    wait_for_earlier_kernels();
    if (item >= items) return;
    const std::uint32_t above = item / groups_of_pairs, token = above / groups_of_heads;
    const std::int64_t pair = std::int64_t{item - above * groups_of_pairs} * (wide ? 8 : 1);
    const int first_head = static_cast<int>(above - token * groups_of_heads) * heads_per_thread;
    const int heads_here = heads - first_head < heads_per_thread ? heads - first_head : heads_per_thread;
    T* const low = x + token * token_stride + first_head * head_stride + pair;
    if constexpr (wide) {
        rotate_eights(low, pairs, head_stride, heads_here, angles, positions + token, pair, direction);
    } else {
        const float cosine = angles.cosines(positions[token])[pair],
                    sine = angles.sines(positions[token])[pair] * direction;
        for (int h = 0; h < heads_here; ++h) {
            T* const at = low + h * head_stride;
            float a = to_float(at[0]), b = to_float(at[pairs]);
            rotate(a, b, cosine, sine);
            at[0] = from_float<T>(a);
            at[pairs] = from_float<T>(b);
        }
    }
}

}  // namespace

void rope(const Launch& launch, const Rope& op) {
    const std::int64_t tokens = op.x.size(0), heads = op.x.size(1), pairs = op.x.size(2) / 2;
    if (op.x.numel() == 0) return;
    const bool wide = eights_fit(op.x, pairs, op.x.stride(0)) && eights_fit(op.x, pairs, op.x.stride(1)) &&
                      eights_fit(op.cosine) && eights_fit(op.sine);
    const std::int64_t groups_of_pairs = wide ? pairs / 8 : pairs,
                       groups_of_heads = ceil_div(heads, heads_per_thread);
    const std::int64_t items = tokens * groups_of_heads * groups_of_pairs;
    require(items < (std::int64_t{1} << 32) - rope_threads, "rope: more elements than the kernel counts");
    const Angles angles{elements<const float>(op.cosine), elements<const float>(op.sine), op.cosine.stride(0),
                        op.sine.stride(0)};
    with_floating(op.x.dtype(), [&]<class T>() {
        launch_early("rope", launch, wide ? rotate_tokens<T, true> : rotate_tokens<T, false>,
                     static_cast<unsigned>(ceil_div(items, rope_threads)), rope_threads, 0, elements<T>(op.x),
                     angles, elements<const std::int32_t>(op.positions), items, groups_of_pairs,
                     groups_of_heads, heads, pairs, op.x.stride(0), op.x.stride(1), op.inverse ? -1.f : 1.f);
    });
}

}  // namespace drover::cuda
