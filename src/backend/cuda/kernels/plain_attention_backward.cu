#include "backend/cuda/kernels/attention_tiles.cuh"

/// Each result has one writer and a fixed order of additions: a tile of queries makes its dq from all keys
/// that it sees, a tile of keys its dk and dv from all queries that see it. Both recompute the weights from
/// the scores and lse.
namespace drover::cuda {
namespace {

using namespace tiles;

/// delta[rows,heads,row_length] = Σ dout · out, one warp per token and head; 0 at tokens in no sequence.
template <class T>
__global__ void deltas(Heads<const T> out, Heads<const T> dout, float* delta, const SequenceOfToken* map,
                       std::int64_t tokens, Geometry geometry) {
    const std::int64_t index = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) / 32;
    const std::int64_t token = index / geometry.heads, head = index % geometry.heads;
    if (token >= tokens) return;
    float sum = 0.f;
    if (map[token].index >= 0)
        for (int d = threadIdx.x % 32; d < geometry.head_size; d += 32)
            sum += to_float(out.at(token, head)[d]) * to_float(dout.at(token, head)[d]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) delta[geometry.statistics_at(token, head)] = sum;
}

/// The inputs of both kernels.
template <class T>
struct Inputs {
    Heads<const T> q, k, v, dout;
    const float *lse, *delta;
    const SequenceOfToken* map;
};

/// `width` columns of dq of one tile of queries of one head. Rows are queries, columns keys.
template <class T, int width>
__global__ void __launch_bounds__(threads) query_gradient(Inputs<T> in, Heads<T> dq, Geometry geometry) {
    __shared__ Loaded loaded;
    __shared__ alignas(16) float weights[tile * pitch];  // [key][query]
    __shared__ bool key_used[tile];
    __shared__ QueryTile query_tile;

    const int head = blockIdx.y, kv_head = head / geometry.group, column = blockIdx.z * width;
    const TileTokens queries = query_tile.choose(geometry, in.map);
    const int row = threadIdx.x / 16 * 4, first_query = static_cast<int>(queries.first) + row;
    float lse[4], delta[4];
    for (int i = 0; i < 4; ++i) {
        const bool used = row + i < queries.count;
        lse[i] = used ? in.lse[geometry.statistics_at(first_query + i, head)] : 0.f;
        delta[i] = used ? in.delta[geometry.statistics_at(first_query + i, head)] : 0.f;
    }
    Result<width> result;
    result.clear();

    const int end = static_cast<int>(queries.first) + queries.count;
    for (int first = query_tile.first_key; first < end; first += tile) {
        const TileTokens keys{first, min(tile, end - first), key_used};
        mark_used(in.map, keys.first, keys.count, key_used);
        Part scores, dweights;
        multiply_heads(in.q, head, queries, in.k, kv_head, keys, geometry.head_size, geometry.scale, loaded,
                       scores);
        multiply_heads(in.dout, head, queries, in.v, kv_head, keys, geometry.head_size, 1.f, loaded,
                       dweights);
        const int key = first + threadIdx.x % 16 * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const bool visible = query_tile.visible(row + i, first_query + i, key + j);
                const float weight = visible ? expf(scores.value[i][j] - lse[i]) : 0.f;
                scores.value[i][j] = weight * (dweights.value[i][j] - delta[i]);
            }
        scores.store_transposed(weights);
        result.add_product(weights, in.k, kv_head, geometry.head_size, column, keys, loaded);
    }
    result.store(dq, head, geometry.head_size, column, queries, [&](int) { return geometry.scale; });
}

/// `width` columns of dk and dv of one tile of keys of one key/value head. Rows are keys, columns queries;
/// the query heads of the group are added in order.
template <class T, int width>
__global__ void __launch_bounds__(threads)
    key_gradient(Inputs<T> in, Heads<T> dk, Heads<T> dv, Geometry geometry) {
    __shared__ Loaded loaded;
    __shared__ alignas(16) float weights[tile * pitch];  // [query][key]
    __shared__ bool query_used[tile], key_used[tile];
    __shared__ int high[tile], end_query;

    const int kv_head = blockIdx.y, column = blockIdx.z * width;
    const TileTokens keys = geometry.tokens(blockIdx.x, key_used);
    if (threadIdx.x == 0) end_query = 0;
    mark_used(in.map, keys.first, keys.count, key_used);
    __syncthreads();
    if (threadIdx.x < tile) {
        const int token = static_cast<int>(keys.first) + threadIdx.x;
        high[threadIdx.x] = key_used[threadIdx.x] ? geometry.high(in.map[token], token) : 0;
        atomicMax(&end_query, high[threadIdx.x]);
    }
    __syncthreads();

    const int row = threadIdx.x / 16 * 4, first_key = static_cast<int>(keys.first) + row;
    Result<width> dkeys, dvalues;
    dkeys.clear();
    dvalues.clear();
    for (int head = kv_head * geometry.group; head < (kv_head + 1) * geometry.group; ++head)
        for (int first = static_cast<int>(keys.first); first < end_query; first += tile) {
            const TileTokens queries{first, min(tile, end_query - first), query_used};
            mark_used(in.map, queries.first, queries.count, query_used);
            Part scores, dweights;
            multiply_heads(in.k, kv_head, keys, in.q, head, queries, geometry.head_size, geometry.scale,
                           loaded, scores);
            multiply_heads(in.v, kv_head, keys, in.dout, head, queries, geometry.head_size, 1.f, loaded,
                           dweights);
            const int query = first + threadIdx.x % 16 * 4;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const bool used = query + j < end_query;
                const std::int64_t at = geometry.statistics_at(query + j, head);
                const float lse = used ? in.lse[at] : 0.f, delta = used ? in.delta[at] : 0.f;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const bool visible = query + j >= first_key + i && query + j < high[row + i];
                    const float weight = visible ? expf(scores.value[i][j] - lse) : 0.f;
                    scores.value[i][j] = weight;
                    dweights.value[i][j] = weight * (dweights.value[i][j] - delta);
                }
            }
            scores.store_transposed(weights);
            dvalues.add_product(weights, in.dout, head, geometry.head_size, column, queries, loaded);
            __syncthreads();
            dweights.store_transposed(weights);
            dkeys.add_product(weights, in.q, head, geometry.head_size, column, queries, loaded);
        }
    dkeys.store(dk, kv_head, geometry.head_size, column, keys, [&](int) { return geometry.scale; });
    dvalues.store(dv, kv_head, geometry.head_size, column, keys, [](int) { return 1.f; });
}

}  // namespace

void attention_backward(const Launch& launch, const AttentionBackward& op) {
    if (op.q.numel() == 0) return;
    const std::int64_t tokens = op.sequences.tokens();
    const Geometry geometry(op);
    auto* delta = launch.scratch.take_array<float>(static_cast<std::size_t>(tokens * (geometry.heads + 3)));
    auto* map = reinterpret_cast<SequenceOfToken*>(delta + tokens * geometry.heads);
    static_assert(sizeof(SequenceOfToken) == 3 * sizeof(float));
    map_tokens(launch, op.sequences, map);
    with_floating(op.q.dtype(), [&]<class T>() {
        const Heads<const T> dout(op.dout);
        deltas<T><<<static_cast<unsigned>(ceil_div(tokens * geometry.heads, threads / 32)), threads, 0,
                    launch.stream>>>(Heads<const T>(op.out), dout, delta, map, tokens, geometry);
        const Inputs<T> inputs{Heads<const T>(op.q),
                               Heads<const T>(op.k),
                               Heads<const T>(op.v),
                               dout,
                               elements<const float>(op.lse),
                               delta,
                               map};
        with_width(op.q.size(2), [&]<int width>() {
            key_gradient<T, width><<<grid_of(op, geometry, op.k.size(1), width), threads, 0, launch.stream>>>(
                inputs, Heads<T>(op.dk), Heads<T>(op.dv), geometry);
            query_gradient<T, width>
                <<<grid_of(op, geometry, geometry.heads, width), threads, 0, launch.stream>>>(
                    inputs, Heads<T>(op.dq), geometry);
        });
    });
    check_launch("attention's gradient");
}

}  // namespace drover::cuda
