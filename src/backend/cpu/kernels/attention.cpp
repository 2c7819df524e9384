#include "backend/cpu/kernels/attention_tiles.h"

namespace drover::cpu::DROVER_ISA {
namespace {

/// State of online softmax for each query (column) of a block.
struct RunningSoftmax {
    alignas(64) float max[max_block];
    alignas(64) float sum[max_block];

    void reset(std::int64_t columns) {
        for (std::int64_t j = 0; j < columns; j += lanes) {
            store_vector(max + j, splat(-__builtin_inff()));
            store_vector(sum + j, Floats{});
        }
    }
};

void hide_invisible(const Band& band, const Strip& s, float* scores, std::int64_t block) {
    for (std::int64_t i = s.row; i < s.row + s.rows; ++i)
        for (std::int64_t j = s.column; j < s.column_end; j += lanes) {
            float* at = scores + i * block + j;
            store_vector(at, band.visible(i, j) ? load_vector(at) : splat(-__builtin_inff()));
        }
}

/// Replaces a tile's scores by exp(score − max) with the maximum so far, and rescales the running sums and
/// the weighted values out /*[pitch][block]*/ to that maximum.
void softmax_step(const Band& band, std::int64_t rows, std::int64_t columns, float* scores,
                  std::int64_t block, RunningSoftmax& running, float* out, std::int64_t head_size) {
    alignas(64) float new_max[max_block];
    for (std::int64_t j = 0; j < columns; j += lanes) store_vector(new_max + j, load_vector(running.max + j));
    for_each_strip(band, rows, columns, [&](const Strip& s) {
        for (std::int64_t j = s.column; j < s.column_end; j += lanes) {
            Floats largest = load_vector(new_max + j);
            for (std::int64_t i = s.row; i < s.row + s.rows; ++i) {
                const Floats score = load_vector(scores + i * block + j);
                largest = score > largest ? score : largest;
            }
            store_vector(new_max + j, largest);
        }
    });

    for (std::int64_t j = 0; j < columns; j += lanes) {
        const Floats factor = exponential(load_vector(running.max + j) - load_vector(new_max + j));
        store_vector(running.sum + j, load_vector(running.sum + j) * factor);
        store_vector(running.max + j, load_vector(new_max + j));
        for (std::int64_t i = 0; i < head_size; ++i)
            store_vector(out + i * block + j, load_vector(out + i * block + j) * factor);
    }

    for_each_strip(band, rows, columns, [&](const Strip& s) {
        for (std::int64_t j = s.column; j < s.column_end; j += lanes) {
            const Floats largest = load_vector(new_max + j);
            Floats sum = load_vector(running.sum + j);
            for (std::int64_t i = s.row; i < s.row + s.rows; ++i) {
                const Floats weight = exponential(load_vector(scores + i * block + j) - largest);
                sum += weight;
                store_vector(scores + i * block + j, weight);
            }
            store_vector(running.sum + j, sum);
        }
    });
}

/// One block of queries of one head.
template <class T>
[[gnu::noinline]] void attend(const Attention& op, std::int64_t head, std::int64_t sequence,
                              std::int64_t first_query, std::int64_t columns, std::int64_t block) {
    alignas(64) float queries[block_area];            // [pitch][block], times scale
    alignas(64) float out[block_area];                // [pitch][block]
    alignas(64) float rows[block_area];               // [block][pitch], a tile of keys or values
    alignas(64) float scores[max_block * max_block];  // [key][query]
    RunningSoftmax running;

    const std::int64_t kv_head = head / (op.q.size(1) / op.k.size(1));
    const HeadRows<const T> q(op.q, head), k(op.k, kv_head), v(op.v, kv_head);
    const std::int64_t head_size = q.head_size, pitch = q.pitch();

    pack_transposed(q, sequence + first_query, columns, op.scale, rows, queries, block);
    fill_zero(out, pitch * block);
    running.reset(round_up(columns, strip));

    // From the diagonal backwards: then every query's maximum is finite from the first tile on.
    const std::int64_t first_key = op.window > 0 ? larger(0, first_query - op.window + 1) : 0;
    std::int64_t tile = first_query, tile_keys = columns;
    for (;;) {
        const Band band = Band::of_keys(tile, first_query, op.window);
        pack(k, sequence + tile, tile_keys, 1.f, rows);
        for_each_strip(band, tile_keys, columns, [&](const Strip& s) {
            multiply<false>({rows + s.row * pitch, pitch, queries, scores + s.row * block, block, head_size},
                            s.rows, s.column, s.column_end);
            if (!s.whole) hide_invisible(band, s, scores, block);
        });
        softmax_step(band, tile_keys, columns, scores, block, running, out, head_size);
        pack(v, sequence + tile, tile_keys, 1.f, rows);
        for_each_strip(band, tile_keys, columns, [&](const Strip& s) {
            multiply<true>({rows + s.row * pitch, pitch, scores + s.row * block, out, block, s.rows},
                           head_size, s.column, s.column_end);
        });
        if (tile <= first_key) break;
        tile_keys = smaller(block, tile - first_key);
        tile -= tile_keys;
    }

    for (std::int64_t j = 0; j < columns; j += lanes) {
        const Floats inverse = 1.f / load_vector(running.sum + j);
        for (std::int64_t i = 0; i < head_size; ++i)
            store_vector(out + i * block + j, load_vector(out + i * block + j) * inverse);
    }
    unpack_transposed(HeadRows<T>(op.out, head), sequence + first_query, columns, 1.f, out, rows, block);
    float* lse = statistics_of(op.lse, head, sequence + first_query);
    for (std::int64_t j = 0; j < columns; ++j) lse[j] = running.max[j] + __builtin_logf(running.sum[j]);
}

}  // namespace

void attention(const Attention& op) {
    const std::int64_t heads = op.q.size(1), block = block_for(op.q.size(2));
    const SequenceCells cells(op.sequences, block);
    with_type(op.q.dtype(), [&](auto t) {
        using T = decltype(t);
        const std::int64_t tasks = cells.count() * heads;
        // Neighbouring tasks share keys and values; late cells, which have the most work, come first.
#pragma omp parallel for schedule(dynamic)
        for (std::int64_t task = 0; task < tasks; ++task) {
            const std::int64_t head = task / cells.count(), cell = cells.count() - 1 - task % cells.count();
            cells.for_each_block(
                cell, [&](std::int64_t sequence, std::int64_t, std::int64_t offset, std::int64_t count) {
                    attend<T>(op, head, sequence, offset, count, block);
                });
            cells.for_each_gap(cell, [&](std::int64_t begin, std::int64_t end) {
                zero_tokens(HeadRows<T>(op.out, head), begin, end);
                for (std::int64_t token = begin; token < end; ++token)
                    *statistics_of(op.lse, head, token) = 0.f;
            });
        }
    });
}

}  // namespace drover::cpu::DROVER_ISA
