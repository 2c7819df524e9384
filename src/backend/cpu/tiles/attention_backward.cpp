#include <omp.h>

#include "backend/cpu/tiles/attention.h"
#include "backend/cpu/tiles/attention_blocks.h"

/// A task is one key/value head of one sequence with all query heads that read it: five products per block of
/// keys × block of queries, and a fixed order of additions.
namespace drover::cpu::tiles {
namespace {

/// One thread's memory. Of the two operands that a tensor becomes, the first has tokens as its width, the
/// second as its depth.
struct Memory {
    // Per block of keys, for all query heads of the group.
    std::byte* keys;           ///< left, tokens by head
    std::byte* keys_as_depth;  ///< left, head by tokens
    std::byte* values;         ///< left, tokens by head
    float* dkeys;              ///< [key tile][head tile]
    float* dvalues;            ///< [key tile][head tile]
    // Per block of queries, for one query head.
    std::byte* queries;           ///< right, tokens by head
    std::byte* queries_as_depth;  ///< right, head by tokens
    std::byte* douts;             ///< right, tokens by head
    std::byte* douts_as_depth;    ///< right, head by tokens
    float* dqueries;              ///< [head tile][query tile]
    float* lse;  ///< [64] log2 of the sum of exponentials; so large after the last query that weights vanish
    float* delta;  ///< [64] Σ dout · out
    // For one block of keys × one of queries.
    float* scores;                ///< [key tile][query tile]
    float* dweights;              ///< [key tile][query tile]
    std::byte* weights;           ///< left, keys by queries
    std::byte* dscores;           ///< left, keys by queries
    std::byte* dscores_as_depth;  ///< right, queries by keys

    Memory(Carver& carver, const HeadTiles& head, std::int64_t blocks)
        : keys(carver.take<std::byte>(blocks * head.tokens_by_depth_bytes())),
          keys_as_depth(carver.take<std::byte>(blocks * head.head_by_tokens_bytes())),
          values(carver.take<std::byte>(blocks * head.tokens_by_depth_bytes())),
          dkeys(carver.take<float>(blocks * head.sum_floats())),
          dvalues(carver.take<float>(blocks * head.sum_floats())),
          queries(carver.take<std::byte>(blocks * head.tokens_by_depth_bytes())),
          queries_as_depth(carver.take<std::byte>(blocks * head.head_by_tokens_bytes())),
          douts(carver.take<std::byte>(blocks * head.tokens_by_depth_bytes())),
          douts_as_depth(carver.take<std::byte>(blocks * head.head_by_tokens_bytes())),
          dqueries(carver.take<float>(blocks * head.sum_floats())),
          lse(carver.take<float>(blocks * block_tokens)),
          delta(carver.take<float>(blocks * block_tokens)),
          scores(carver.take<float>(score_floats)),
          dweights(carver.take<float>(score_floats)),
          weights(carver.take<std::byte>(score_bytes)),
          dscores(carver.take<std::byte>(score_bytes)),
          dscores_as_depth(carver.take<std::byte>(score_bytes)) {}
};

/// From scores and dweights: weights = 2^(score · factor − lse) and dscores = weight · (dweight − delta), as
/// operands of the products that follow.
void score_gradients(const Band& band, const Block& keys, const Block& queries, float factor,
                     const float* lse, const float* delta, const Memory& memory) {
    const bool whole = keys.count == block_tokens && band.whole(0, block_tokens, block_tokens);
    const std::int64_t row_panel = queries.steps() * tile_bytes;  // of the left operands
    const std::int64_t column_panel = keys.steps() * tile_bytes;  // of the right one
    const auto gradients = [&](std::int64_t row, std::int64_t tile, Floats& weight, Floats& dscore) {
        const std::int64_t column = tile * tile_width;
        const Floats score = load_vector(sums_at(memory.scores, row, tile, block_tiles));
        const Floats dweight = load_vector(sums_at(memory.dweights, row, tile, block_tiles));
        weight = power_of_two(score * factor - load_vector(lse + column));
        if (!whole) weight = band.visible(row, column) ? weight : Floats{};
        dscore = weight * (dweight - load_vector(delta + column));
    };
    for (std::int64_t step = 0; step < queries.steps(); ++step)
        for (std::int64_t row = 0; row < keys.steps() * tile_depth; row += 2) {
            Floats weight[2][2], dscore[2][2];  // [row][query tile]
#pragma GCC unroll 2
            for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
                for (int j = 0; j < 2; ++j) gradients(row + i, 2 * step + j, weight[i][j], dscore[i][j]);
#pragma GCC unroll 2
            for (int i = 0; i < 2; ++i) {
                const std::int64_t at =
                    (row + i) / tile_width * row_panel + step * tile_bytes + (row + i) % tile_width * 64;
                store_row(memory.weights + at, weight[i][0], weight[i][1]);
                store_row(memory.dscores + at, dscore[i][0], dscore[i][1]);
            }
#pragma GCC unroll 2
            for (int j = 0; j < 2; ++j)
                store_pairs(memory.dscores_as_depth + (2 * step + j) * column_panel + row / 2 * 64,
                            dscore[0][j], dscore[1][j]);
        }
}

/// One key/value head of one sequence.
template <class Unit>
class HeadGradient {
  public:
    HeadGradient(const AttentionBackward& op, std::int64_t kv_head, std::int64_t first_token,
                 std::int64_t length, std::byte* scratch)
        : op_(op),
          kv_head_(kv_head),
          first_token_(first_token),
          length_(length),
          blocks_((length + block_tokens - 1) / block_tokens),
          head_{op.q.size(2)},
          carver_(scratch),
          memory_(carver_, head_, blocks_) {}

    void run() {
        read_keys();
        const std::int64_t group = op_.q.size(1) / op_.k.size(1);
        for (std::int64_t head = kv_head_ * group; head < (kv_head_ + 1) * group; ++head) {
            read_queries(head);
            for (std::int64_t key_block = 0; key_block < blocks_; ++key_block) {
                const std::int64_t last_query =
                    op_.window > 0 ? smaller(length_, (key_block + 1) * block_tokens - 1 + op_.window) - 1
                                   : length_ - 1;
                for (std::int64_t query_block = key_block; query_block <= last_query / block_tokens;
                     ++query_block)
                    add_gradients(key_block, query_block);
            }
            write_queries(head);
        }
        write_keys();
    }

  private:
    void read_keys() {
        const HeadRows<const bf16> k(op_.k, kv_head_), v(op_.v, kv_head_);
        for (std::int64_t i = 0; i < blocks_; ++i) {
            const Block block(i, length_);
            pack_tokens<Operand::left>(k, first_token_, block,
                                       memory_.keys + i * head_.tokens_by_depth_bytes());
            pack_head<Operand::left>(k, first_token_, block,
                                     memory_.keys_as_depth + i * head_.head_by_tokens_bytes());
            pack_tokens<Operand::left>(v, first_token_, block,
                                       memory_.values + i * head_.tokens_by_depth_bytes());
        }
        const std::size_t bytes = static_cast<std::size_t>(blocks_ * head_.sum_floats()) * sizeof(float);
        __builtin_memset(memory_.dkeys, 0, bytes);
        __builtin_memset(memory_.dvalues, 0, bytes);
    }

    void read_queries(std::int64_t head_index) {
        const HeadRows<const bf16> q(op_.q, head_index), out(op_.out, head_index), dout(op_.dout, head_index);
        for (std::int64_t i = 0; i < blocks_; ++i) {
            const Block block(i, length_);
            pack_tokens<Operand::right>(q, first_token_, block,
                                        memory_.queries + i * head_.tokens_by_depth_bytes());
            pack_head<Operand::right>(q, first_token_, block,
                                      memory_.queries_as_depth + i * head_.head_by_tokens_bytes());
            pack_tokens<Operand::right>(dout, first_token_, block,
                                        memory_.douts + i * head_.tokens_by_depth_bytes());
            pack_head<Operand::right>(dout, first_token_, block,
                                      memory_.douts_as_depth + i * head_.head_by_tokens_bytes());
            const float* given = statistics_of(op_.lse, head_index, first_token_ + block.first);
            for (std::int64_t j = 0; j < block_tokens; ++j) {
                float& lse = memory_.lse[i * block_tokens + j];
                float& delta = memory_.delta[i * block_tokens + j];
                lse = -hidden_score;
                delta = 0;
                if (j >= block.count) continue;
                const std::int64_t token = first_token_ + block.first + j;
                Floats sum{};
                for_each_vector(head_.size, [&](auto at) {
                    sum += load(out.row(token), at) * load(dout.row(token), at);
                });
                lse = given[j] * log2_of_e;
                delta = sum_of_lanes(sum);
            }
        }
        __builtin_memset(memory_.dqueries, 0,
                         static_cast<std::size_t>(blocks_ * head_.sum_floats()) * sizeof(float));
    }

    /// Adds what one block of keys and one of queries contribute to dk, dv and dq.
    void add_gradients(std::int64_t key_block, std::int64_t query_block) {
        const Block keys(key_block, length_), queries(query_block, length_);
        const std::int64_t key_tokens = key_block * head_.tokens_by_depth_bytes();
        const std::int64_t query_tokens = query_block * head_.tokens_by_depth_bytes();
        const std::int64_t query_heads = query_block * head_.head_by_tokens_bytes();
        // Tiles that the products skip must not hold NaN: they are hidden, but read.
        if (keys.count < block_tokens || queries.count < block_tokens) {
            __builtin_memset(memory_.scores, 0, score_floats * sizeof(float));
            __builtin_memset(memory_.dweights, 0, score_floats * sizeof(float));
        }
        const auto over_head = [&](const std::byte* left, const std::byte* right, float* sums) {
            multiply<Unit>({.left = left,
                            .left_pitch = head_.steps() * tile_bytes,
                            .right = right,
                            .right_pitch = head_.steps() * tile_bytes,
                            .steps = head_.steps(),
                            .sums = sums,
                            .sums_pitch = block_tiles * tile_floats,
                            .add = false},
                           keys.tiles(), queries.tiles());
        };
        over_head(memory_.keys + key_tokens, memory_.queries + query_tokens, memory_.scores);
        over_head(memory_.values + key_tokens, memory_.douts + query_tokens, memory_.dweights);
        score_gradients(Band::of_keys(keys.first, queries.first, op_.window), keys, queries,
                        op_.scale * log2_of_e, memory_.lse + queries.first, memory_.delta + queries.first,
                        memory_);
        const auto over_queries = [&](const std::byte* left, const std::byte* right, float* sums) {
            multiply<Unit>({.left = left,
                            .left_pitch = queries.steps() * tile_bytes,
                            .right = right,
                            .right_pitch = queries.steps() * tile_bytes,
                            .steps = queries.steps(),
                            .sums = sums + key_block * head_.sum_floats(),
                            .sums_pitch = head_.tiles() * tile_floats,
                            .add = true},
                           keys.tiles(), head_.tiles());
        };
        over_queries(memory_.weights, memory_.douts_as_depth + query_heads, memory_.dvalues);
        over_queries(memory_.dscores, memory_.queries_as_depth + query_heads, memory_.dkeys);
        multiply<Unit>({.left = memory_.keys_as_depth + key_block * head_.head_by_tokens_bytes(),
                        .left_pitch = keys.steps() * tile_bytes,
                        .right = memory_.dscores_as_depth,
                        .right_pitch = keys.steps() * tile_bytes,
                        .steps = keys.steps(),
                        .sums = memory_.dqueries + query_block * head_.sum_floats(),
                        .sums_pitch = block_tiles * tile_floats,
                        .add = true},
                       head_.tiles(), queries.tiles());
    }

    void write_queries(std::int64_t head_index) {
        alignas(64) float factors[block_tokens];
        for (float& factor : factors) factor = op_.scale;
        const HeadRows<bf16> dq(op_.dq, head_index);
        for (std::int64_t i = 0; i < blocks_; ++i)
            unpack_transposed(dq, first_token_, Block(i, length_), memory_.dqueries + i * head_.sum_floats(),
                              factors);
    }

    void write_keys() {
        const HeadRows<bf16> dk(op_.dk, kv_head_), dv(op_.dv, kv_head_);
        for (std::int64_t token = 0; token < length_; ++token) {
            const std::int64_t offset = token / block_tokens * head_.sum_floats(), row = token % block_tokens;
            for_each_vector(head_.size, [&](auto at) {
                const std::int64_t tile = at.begin / tile_width;
                const auto sums = [&](float* all) {
                    return load_vector(sums_at(all + offset, row, tile, head_.tiles()));
                };
                store(dk.row(first_token_ + token), at, sums(memory_.dkeys) * op_.scale);
                store(dv.row(first_token_ + token), at, sums(memory_.dvalues));
            });
        }
    }

    const AttentionBackward& op_;
    std::int64_t kv_head_, first_token_, length_, blocks_;
    HeadTiles head_;
    Carver carver_;
    Memory memory_;
};

template <class Unit>
void run_on(const AttentionBackward& op, std::byte* const* scratch_of_thread) {
    const std::int64_t kv_heads = op.k.size(1), group = op.q.size(1) / kv_heads;
    for_each_head<Unit>(
        op.sequences, kv_heads, 1,
        [&](std::int64_t first_token, std::int64_t length, std::int64_t kv_head, std::int64_t) {
            HeadGradient<Unit>(op, kv_head, first_token, length, scratch_of_thread[omp_get_thread_num()])
                .run();
        },
        [&](std::int64_t kv_head, std::int64_t begin, std::int64_t end) {
            zero_tokens(HeadRows<bf16>(op.dk, kv_head), begin, end);
            zero_tokens(HeadRows<bf16>(op.dv, kv_head), begin, end);
            for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
                zero_tokens(HeadRows<bf16>(op.dq, head), begin, end);
        });
}

}  // namespace

std::size_t thread_bytes(const AttentionBackward& op) {
    Carver carver(nullptr);
    Memory(carver, HeadTiles{op.q.size(2)}, (op.sequences.row_length + block_tokens - 1) / block_tokens);
    return carver.used();
}

void run(const AttentionBackward& op, TileUnit unit, std::byte* const* scratch_of_thread) {
    if (unit == TileUnit::amx)
        run_on<AmxUnit>(op, scratch_of_thread);
    else
        run_on<VectorUnit>(op, scratch_of_thread);
}

}  // namespace drover::cpu::tiles
