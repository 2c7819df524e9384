#include "backend/cuda/kernels/attention_tiles.cuh"

namespace drover::cuda {
namespace {

using namespace tiles;

constexpr float infinity = __builtin_huge_valf();

/// Over the 16 threads that share rows.
__device__ float row_max(float value) {
    for (int offset = 8; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
    return value;
}
__device__ float row_sum(float value) {
    for (int offset = 8; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    return value;
}

/// `width` columns of the output of one tile of queries of one head, by online softmax.
template <class T, int width>
__global__ void __launch_bounds__(threads)
    attend(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, float* lse,
           const SequenceOfToken* map, Geometry geometry) {
    __shared__ Loaded loaded;
    __shared__ alignas(16) float weights[tile * pitch];  // [key][query]
    __shared__ bool key_used[tile];
    __shared__ QueryTile query_tile;

    const int head = blockIdx.y, kv_head = head / geometry.group, column = blockIdx.z * width;
    const TileTokens queries = query_tile.choose(geometry, map);
    const int row = threadIdx.x / 16 * 4, first_query = static_cast<int>(queries.first) + row;
    float max[4], sum[4];
    for (int i = 0; i < 4; ++i) max[i] = -infinity, sum[i] = 0.f;
    Result<width> result;
    result.clear();

    const int end = static_cast<int>(queries.first) + queries.count;
    for (int first = query_tile.first_key; first < end; first += tile) {
        const TileTokens keys{first, min(tile, end - first), key_used};
        mark_used(map, keys.first, keys.count, key_used);
        Part scores;
        multiply_heads(q, head, queries, k, kv_head, keys, geometry.head_size, geometry.scale, loaded,
                       scores);
        const int key = first + threadIdx.x % 16 * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float largest = max[i];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (!query_tile.visible(row + i, first_query + i, key + j)) scores.value[i][j] = -infinity;
                largest = fmaxf(largest, scores.value[i][j]);
            }
            largest = row_max(largest);
            // A row that has seen nothing yet stays at zero.
            const float base = largest == -infinity ? 0.f : largest;
            const float shrink = expf(max[i] - base);
            float added = 0.f;
#pragma unroll
            for (int j = 0; j < 4; ++j) added += scores.value[i][j] = expf(scores.value[i][j] - base);
            sum[i] = sum[i] * shrink + row_sum(added);
            max[i] = largest;
#pragma unroll
            for (float& x : result.value[i]) x *= shrink;
        }
        scores.store_transposed(weights);
        result.add_product(weights, v, kv_head, geometry.head_size, column, keys, loaded);
    }

    result.store(out, head, geometry.head_size, column, queries, [&](int i) { return 1.f / sum[i]; });
    if (blockIdx.z == 0 && threadIdx.x % 16 == 0)
        for (int i = 0; i < 4; ++i)
            if (row + i < queries.count)
                lse[geometry.statistics_at(first_query + i, head)] =
                    queries.used[row + i] ? max[i] + logf(sum[i]) : 0.f;
}

}  // namespace

void attention(const Launch& launch, const Attention& op) {
    if (op.q.numel() == 0) return;
    auto* map = launch.scratch.take_array<SequenceOfToken>(static_cast<std::size_t>(op.sequences.tokens()));
    map_tokens(launch, op.sequences, map);
    const Geometry geometry(op);
    with_floating(op.q.dtype(), [&]<class T>() {
        with_width(op.q.size(2), [&]<int width>() {
            attend<T, width><<<grid_of(op, geometry, geometry.heads, width), threads, 0, launch.stream>>>(
                Heads<const T>(op.q), Heads<const T>(op.k), Heads<const T>(op.v), Heads<T>(op.out),
                elements<float>(op.lse), map, geometry);
        });
    });
    check_launch("attention");
}

}  // namespace drover::cuda
