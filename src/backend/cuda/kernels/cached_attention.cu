#include "backend/cuda/kernels/device_code.cuh"

/// One block per new token and query head. What it sums, and in which order, depends only on the token's
/// position, so its result does not depend on the other tokens.
namespace drover::cuda {
namespace {

constexpr int cached_threads = 256;
/// Threads that compute a score together.
constexpr int group = 8;
/// Keys whose scores are held at once.
constexpr int key_block = cached_threads;

/// A tensor [N,heads,D] or, with a sequence, a cache [sequences,capacity,heads,D].
template <class T>
struct View {
    T* data;
    std::int64_t sequence_stride, token_stride, head_stride;

    explicit View(const Tensor& x)
        : data(static_cast<T*>(x.raw())),
          sequence_stride(x.rank() == 4 ? x.stride(0) : 0),
          token_stride(x.stride(x.rank() - 3)),
          head_stride(x.stride(x.rank() - 2)) {}
    __device__ T* at(std::int64_t sequence, std::int64_t token, std::int64_t head) const {
        return data + sequence * sequence_stride + token * token_stride + head * head_stride;
    }
};

/// New keys and values → the caches, one block per token.
template <class T>
__global__ void keep(View<const T> k, View<const T> v, View<T> key_cache, View<T> value_cache,
                     const std::int32_t* sequence_of, const std::int32_t* positions, int heads,
                     int head_size) {
    const std::int64_t token = blockIdx.x, sequence = sequence_of[token], position = positions[token];
    for (int i = threadIdx.x; i < heads * head_size; i += cached_threads) {
        const int head = i / head_size, d = i % head_size;
        key_cache.at(sequence, position, head)[d] = k.at(0, token, head)[d];
        value_cache.at(sequence, position, head)[d] = v.at(0, token, head)[d];
    }
}

__device__ float block_max(float value) {
    __shared__ float of_warp[cached_threads / 32];
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_max(of_warp[threadIdx.x % (cached_threads / 32)]);
}

/// `step` elements at a time: a pack, or one element. A thread has `columns` such groups, at (column
/// thread)·step and then every column_threads·step; the other threads work on other keys.
template <class T, int step>
__global__ void __launch_bounds__(cached_threads)
    attend(View<const T> q, View<const T> key_cache, View<const T> value_cache, View<T> out,
           const std::int32_t* sequence_of, const std::int32_t* positions, int heads_per_key, int head_size,
           int column_threads, float scale, std::int64_t window) {
    constexpr int columns = step == 1 ? 2 : 1;
    static_assert(cached_threads * columns * step >= CachedAttention::largest_head);
    __shared__ float query[CachedAttention::largest_head], weights[key_block],
        sums[cached_threads * step * columns];

    const std::int64_t token = blockIdx.x;
    const int head = blockIdx.y, kv_head = head / heads_per_key;
    const std::int64_t sequence = sequence_of[token], position = positions[token];
    const std::int64_t first = window > 0 && position >= window ? position - window + 1 : 0;
    for (int d = threadIdx.x; d < head_size; d += cached_threads)
        query[d] = scale * to_float(q.at(0, token, head)[d]);

    const int column_thread = threadIdx.x % column_threads, key_thread = threadIdx.x / column_threads;
    const int key_threads = cached_threads / column_threads;
    float result[columns][step] = {};
    float largest = -__builtin_huge_valf(), sum = 0.f;
    for (std::int64_t begin = first; begin <= position; begin += key_block) {
        const int count = static_cast<int>(min(static_cast<std::int64_t>(key_block), position + 1 - begin));
        __syncthreads();  // weights of the previous block may still be read
        for (int key = threadIdx.x / group; key < key_block; key += cached_threads / group) {
            float score = 0.f;
            if (key < count) {
                const T* row = key_cache.at(sequence, begin + key, kv_head);
                for (int d = threadIdx.x % group * step; d < head_size; d += group * step) {
                    if constexpr (step > 1) {
                        const Pack<T> pack = load_pack(row + d);
#pragma unroll
                        for (int i = 0; i < step; ++i)
                            score = fmaf(query[d + i], to_float(pack.element[i]), score);
                    } else {
                        score = fmaf(query[d], to_float(row[d]), score);
                    }
                }
            }
            for (int offset = group / 2; offset > 0; offset /= 2)
                score += __shfl_xor_sync(0xFFFFFFFFu, score, offset);
            if (threadIdx.x % group == 0) weights[key] = key < count ? score : -__builtin_huge_valf();
        }
        __syncthreads();
        const float score = weights[threadIdx.x];
        const float new_largest = fmaxf(largest, block_max(score));
        const float shrink = expf(largest - new_largest), weight = expf(score - new_largest);
        largest = new_largest;
        sum = sum * shrink + block_sum(weight);
        weights[threadIdx.x] = weight;
        __syncthreads();
#pragma unroll
        for (auto& column : result)
#pragma unroll
            for (float& x : column) x *= shrink;
#pragma unroll 4
        for (int key = key_thread; key < count; key += key_threads) {
            const T* row = value_cache.at(sequence, begin + key, kv_head);
            const float w = weights[key];
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const int d = (c * column_threads + column_thread) * step;
                if (d >= head_size) continue;
                if constexpr (step > 1) {
                    const Pack<T> pack = load_pack(row + d);
#pragma unroll
                    for (int i = 0; i < step; ++i)
                        result[c][i] = fmaf(w, to_float(pack.element[i]), result[c][i]);
                } else {
                    result[c][0] = fmaf(w, to_float(row[d]), result[c][0]);
                }
            }
        }
    }

    // sums[key thread][column]
    const int pitch = columns * column_threads * step;
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
        for (int i = 0; i < step; ++i)
            sums[key_thread * pitch + (c * column_threads + column_thread) * step + i] = result[c][i];
    __syncthreads();
    T* to = out.at(0, token, head);
    for (int d = threadIdx.x; d < head_size; d += cached_threads) {
        float total = 0.f;
        for (int t = 0; t < key_threads; ++t) total += sums[t * pitch + d];
        to[d] = from_float<T>(total / sum);
    }
}

/// Threads side by side that cover a head of `packs` packs: a power of two.
int column_threads_for(std::int64_t packs) {
    int count = 1;
    while (count < packs && count < cached_threads) count *= 2;
    return count;
}

}  // namespace

void cached_attention(const Launch& launch, const CachedAttention& op) {
    if (op.q.numel() == 0) return;
    const auto* sequence_of = elements<const std::int32_t>(op.sequence_of);
    const auto* positions = elements<const std::int32_t>(op.positions);
    const std::int64_t head_size = op.q.size(2);
    const auto tokens = static_cast<unsigned>(op.q.size(0));
    with_floating(op.q.dtype(), [&]<class T>() {
        keep<T><<<tokens, cached_threads, 0, launch.stream>>>(
            View<const T>(op.k), View<const T>(op.v), View<T>(op.key_cache), View<T>(op.value_cache),
            sequence_of, positions, static_cast<int>(op.k.size(1)), static_cast<int>(head_size));
        const auto run = [&]<int step>() {
            attend<T, step>
                <<<dim3(tokens, static_cast<unsigned>(op.q.size(1))), cached_threads, 0, launch.stream>>>(
                    View<const T>(op.q), View<const T>(op.key_cache), View<const T>(op.value_cache),
                    View<T>(op.out), sequence_of, positions, static_cast<int>(op.q.size(1) / op.k.size(1)),
                    static_cast<int>(head_size), column_threads_for(ceil_div(head_size, step)), op.scale,
                    op.window);
        };
        // The caches are packed, so their rows are aligned if the first one is and a head is made of whole
        // packs.
        if (packs_fit<T>(op.key_cache.raw(), head_size, head_size) &&
            packs_fit<T>(op.value_cache.raw(), head_size, head_size))
            run.template operator()<pack_size<T>>();
        else
            run.template operator()<1>();
    });
    check_launch("cached_attention");
}

}  // namespace drover::cuda
