#include "backend/cpu/kernels/attention_tiles.h"

/// Two kinds of task, so that each result has one writer and a fixed order of additions: a block of queries
/// makes its dq from all keys that it sees, a block of keys its dk and dv from all queries that see it. Both
/// recompute the weights from the scores and lse, which costs seven products of tiles instead of five.
namespace drover::cpu::DROVER_ISA {
namespace {

/// Per query: log of the sum of exponentials, and delta = Σ dout · out.
struct QueryStatistics {
    alignas(64) float lse[max_block];
    alignas(64) float delta[max_block];

    /// `dout` holds the packed rows of the same queries.
    template <class T>
    void read(const Tensor& lse_tensor, const HeadRows<const T>& out, std::int64_t head, std::int64_t first,
              std::int64_t count, const float* dout) {
        const float* given = statistics_of(lse_tensor, head, first);
        for (std::int64_t i = 0; i < count; ++i) {
            Floats sum{};
            for_each_vector(out.head_size, [&](auto at) {
                sum += load(out.row(first + i), at) * load_vector(dout + i * out.pitch() + at.begin);
            });
            lse[i] = given[i];
            delta[i] = sum_of_lanes(sum);
        }
        for (std::int64_t i = count; i < round_up(count, strip); ++i) lse[i] = delta[i] = 0.f;
    }
};

/// Replaces scores by the weights p = exp(score − lse) and dweights by dscores = p · (dweight − delta).
/// lse(row, column) and delta(row, column) give the vectors that belong to the queries there.
template <class Lse, class Delta>
void score_gradients(const Band& band, const Strip& s, float* scores, float* dweights, std::int64_t block,
                     const Lse& lse, const Delta& delta) {
    for (std::int64_t i = s.row; i < s.row + s.rows; ++i)
        for (std::int64_t j = s.column; j < s.column_end; j += lanes) {
            float* score = scores + i * block + j;
            float* dweight = dweights + i * block + j;
            Floats weight = exponential(load_vector(score) - lse(i, j));
            if (!s.whole) weight = band.visible(i, j) ? weight : Floats{};
            store_vector(score, weight);
            store_vector(dweight, weight * (load_vector(dweight) - delta(i, j)));
        }
}

/// dq of one block of queries of one head. Rows are keys, columns queries.
template <class T>
[[gnu::noinline]] void query_gradient(const AttentionBackward& op, std::int64_t head, std::int64_t sequence,
                                      std::int64_t first_query, std::int64_t columns, std::int64_t block) {
    alignas(64) float queries[block_area];   // [pitch][block], times scale
    alignas(64) float douts[block_area];     // [pitch][block]
    alignas(64) float dqueries[block_area];  // [pitch][block]
    alignas(64) float keys[block_area];      // [block][pitch]
    alignas(64) float values[block_area];    // [block][pitch]
    alignas(64) float scores[max_block * max_block];
    alignas(64) float dscores[max_block * max_block];
    QueryStatistics statistics;

    const std::int64_t kv_head = head / (op.q.size(1) / op.k.size(1));
    const HeadRows<const T> q(op.q, head), k(op.k, kv_head), v(op.v, kv_head), out(op.out, head),
        dout(op.dout, head);
    const std::int64_t head_size = q.head_size, pitch = q.pitch(), first_token = sequence + first_query;

    pack_transposed(q, first_token, columns, op.scale, keys, queries, block);
    pack_transposed(dout, first_token, columns, 1.f, values, douts, block);
    statistics.read(op.lse, out, head, first_token, columns, values);
    fill_zero(dqueries, pitch * block);
    const auto lse = [&](std::int64_t, std::int64_t column) { return load_vector(statistics.lse + column); };
    const auto delta = [&](std::int64_t, std::int64_t column) {
        return load_vector(statistics.delta + column);
    };

    const std::int64_t first_key = op.window > 0 ? larger(0, first_query - op.window + 1) : 0;
    const std::int64_t end_key = first_query + columns;
    for (std::int64_t tile = first_key; tile < end_key; tile += block) {
        const std::int64_t tile_keys = smaller(block, end_key - tile);
        const Band band = Band::of_keys(tile, first_query, op.window);
        pack(k, sequence + tile, tile_keys, 1.f, keys);
        pack(v, sequence + tile, tile_keys, 1.f, values);
        for_each_strip(band, tile_keys, columns, [&](const Strip& s) {
            const float* strip_keys = keys + s.row * pitch;
            const float* strip_values = values + s.row * pitch;
            float* strip_scores = scores + s.row * block;
            float* strip_dscores = dscores + s.row * block;
            multiply<false>({strip_keys, pitch, queries, strip_scores, block, head_size}, s.rows, s.column,
                            s.column_end);
            multiply<false>({strip_values, pitch, douts, strip_dscores, block, head_size}, s.rows, s.column,
                            s.column_end);
            score_gradients(band, s, scores, dscores, block, lse, delta);
            multiply<true>({strip_keys, pitch, strip_dscores, dqueries, block, s.rows}, head_size, s.column,
                           s.column_end);
        });
    }
    unpack_transposed(HeadRows<T>(op.dq, head), first_token, columns, op.scale, dqueries, keys, block);
}

/// dk and dv of one block of keys of one key/value head. Rows are queries, columns keys; the query heads of
/// the group are added in order.
template <class T>
[[gnu::noinline]] void key_value_gradient(const AttentionBackward& op, std::int64_t kv_head,
                                          std::int64_t sequence, std::int64_t length, std::int64_t first_key,
                                          std::int64_t columns, std::int64_t block) {
    alignas(64) float keys[block_area];     // [pitch][block], times scale
    alignas(64) float values[block_area];   // [pitch][block]
    alignas(64) float dkeys[block_area];    // [pitch][block]
    alignas(64) float dvalues[block_area];  // [pitch][block]
    alignas(64) float queries[block_area];  // [block][pitch]
    alignas(64) float douts[block_area];    // [block][pitch]
    alignas(64) float scores[max_block * max_block];
    alignas(64) float dscores[max_block * max_block];
    QueryStatistics statistics;

    const HeadRows<const T> k(op.k, kv_head), v(op.v, kv_head);
    const std::int64_t head_size = k.head_size, pitch = k.pitch(), first_token = sequence + first_key;

    pack_transposed(k, first_token, columns, op.scale, queries, keys, block);
    pack_transposed(v, first_token, columns, 1.f, douts, values, block);
    fill_zero(dkeys, pitch * block);
    fill_zero(dvalues, pitch * block);
    const auto lse = [&](std::int64_t row, std::int64_t) { return splat(statistics.lse[row]); };
    const auto delta = [&](std::int64_t row, std::int64_t) { return splat(statistics.delta[row]); };

    const std::int64_t group = op.q.size(1) / op.k.size(1);
    const std::int64_t end_query =
        op.window > 0 ? smaller(length, first_key + columns - 1 + op.window) : length;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const HeadRows<const T> q(op.q, head), out(op.out, head), dout(op.dout, head);
        for (std::int64_t tile = first_key; tile < end_query; tile += block) {
            const std::int64_t tile_queries = smaller(block, end_query - tile);
            const Band band = Band::of_queries(tile, first_key, op.window);
            pack(q, sequence + tile, tile_queries, 1.f, queries);
            pack(dout, sequence + tile, tile_queries, 1.f, douts);
            statistics.read(op.lse, out, head, sequence + tile, tile_queries, douts);
            for_each_strip(band, tile_queries, columns, [&](const Strip& s) {
                const float* strip_queries = queries + s.row * pitch;
                const float* strip_douts = douts + s.row * pitch;
                float* strip_scores = scores + s.row * block;
                float* strip_dscores = dscores + s.row * block;
                multiply<false>({strip_queries, pitch, keys, strip_scores, block, head_size}, s.rows,
                                s.column, s.column_end);
                multiply<false>({strip_douts, pitch, values, strip_dscores, block, head_size}, s.rows,
                                s.column, s.column_end);
                score_gradients(band, s, scores, dscores, block, lse, delta);
                multiply<true>({strip_douts, pitch, strip_scores, dvalues, block, s.rows}, head_size,
                               s.column, s.column_end);
                multiply<true>({strip_queries, pitch, strip_dscores, dkeys, block, s.rows}, head_size,
                               s.column, s.column_end);
            });
        }
    }
    unpack_transposed(HeadRows<T>(op.dk, kv_head), first_token, columns, op.scale, dkeys, queries, block);
    unpack_transposed(HeadRows<T>(op.dv, kv_head), first_token, columns, 1.f, dvalues, queries, block);
}

}  // namespace

void attention_backward(const AttentionBackward& op) {
    const std::int64_t heads = op.q.size(1), kv_heads = op.k.size(1), block = block_for(op.q.size(2));
    const SequenceCells cells(op.sequences, block);
    with_type(op.q.dtype(), [&](auto t) {
        using T = decltype(t);
        // Large tasks first: blocks of keys (of all the group's heads), early ones first since more queries
        // see them; then blocks of queries, late ones first. Neighbouring tasks share a head.
        const std::int64_t key_tasks = cells.count() * kv_heads, tasks = key_tasks + cells.count() * heads;
#pragma omp parallel for schedule(dynamic)
        for (std::int64_t task = 0; task < tasks; ++task) {
            if (task < key_tasks) {
                const std::int64_t kv_head = task / cells.count(), cell = task % cells.count();
                cells.for_each_block(cell, [&](std::int64_t sequence, std::int64_t length,
                                               std::int64_t offset, std::int64_t count) {
                    key_value_gradient<T>(op, kv_head, sequence, length, offset, count, block);
                });
                cells.for_each_gap(cell, [&](std::int64_t begin, std::int64_t end) {
                    zero_tokens(HeadRows<T>(op.dk, kv_head), begin, end);
                    zero_tokens(HeadRows<T>(op.dv, kv_head), begin, end);
                });
            } else {
                const std::int64_t rest = task - key_tasks;
                const std::int64_t head = rest / cells.count(),
                                   cell = cells.count() - 1 - rest % cells.count();
                cells.for_each_block(
                    cell, [&](std::int64_t sequence, std::int64_t, std::int64_t offset, std::int64_t count) {
                        query_gradient<T>(op, head, sequence, offset, count, block);
                    });
                cells.for_each_gap(cell, [&](std::int64_t begin, std::int64_t end) {
                    zero_tokens(HeadRows<T>(op.dq, head), begin, end);
                });
            }
        }
    });
}

}  // namespace drover::cpu::DROVER_ISA
