#include "backend/cpu/tiles/attention.h"

#include <omp.h>

#include "backend/cpu/tiles/attention_blocks.h"

namespace drover::cpu::tiles {
namespace {

/// Blocks of queries that share the packing of keys and values.
constexpr std::int64_t blocks_of_part = 8;

/// One thread's memory.
struct Memory {
    std::byte* keys;     ///< per block: left operand, tokens by head
    std::byte* values;   ///< per block: left operand, head by tokens
    std::byte* queries;  ///< right operand, tokens by head
    float* scores;       ///< [key tile][query tile]
    std::byte* weights;  ///< right operand, queries by keys
    float* out;          ///< [head tile][query tile]

    Memory(Carver& carver, const HeadTiles& head, std::int64_t blocks)
        : keys(carver.take<std::byte>(blocks * head.tokens_by_depth_bytes())),
          values(carver.take<std::byte>(blocks * head.head_by_tokens_bytes())),
          queries(carver.take<std::byte>(head.tokens_by_depth_bytes())),
          scores(carver.take<float>(score_floats)),
          weights(carver.take<std::byte>(score_bytes)),
          out(carver.take<float>(head.sum_floats())) {}
};

std::int64_t blocks_in(std::int64_t length) {
    return (length + block_tokens - 1) / block_tokens;
}

/// State of online softmax for each query of a block.
struct RunningSoftmax {
    alignas(64) float max[block_tokens];  ///< of the scores times scale times log2 e
    alignas(64) float sum[block_tokens];
};

/// Turns a block of scores into weights 2^(score · factor − max), as a right operand, with the maximum so
/// far; rescales the running sums and `out` to that maximum. Unless the block is the `first`, every query has
/// seen a key.
void softmax_step(const Band& band, const Block& keys, const Block& queries, float factor, bool first,
                  const HeadTiles& head, RunningSoftmax& running, const Memory& memory) {
    const bool whole = keys.count == block_tokens && band.whole(0, block_tokens, block_tokens);
    const std::int64_t rows = keys.steps() * tile_depth;
    for (std::int64_t tile = 0; tile < queries.tiles(); ++tile) {
        const auto score = [&](std::int64_t row) { return sums_at(memory.scores, row, tile, block_tiles); };
        Floats largest = splat(hidden_score);
        for (std::int64_t row = 0; row < rows; ++row) {
            Floats x = load_vector(score(row)) * factor;
            if (!whole) {
                x = band.visible(row, tile * tile_width) ? x : splat(hidden_score);
                store_vector(score(row), x);
            }
            largest = x > largest ? x : largest;
        }
        float* max = running.max + tile * tile_width;
        float* sum = running.sum + tile * tile_width;
        Floats total{};
        if (!first) {
            const Floats before = load_vector(max);
            largest = largest > before ? largest : before;
            const Floats shrink = power_of_two(before - largest);
            total = load_vector(sum) * shrink;
            if (_mm512_cmpneq_ps_mask(before, largest))
                for (std::int64_t row = 0; row < head.size; ++row) {
                    float* out = sums_at(memory.out, row, tile, block_tiles);
                    store_vector(out, load_vector(out) * shrink);
                }
        }
        store_vector(max, largest);
        // Hidden scores already include the factor.
        const float rest_of_factor = whole ? factor : 1.f;
        std::byte* weights = memory.weights + tile * keys.steps() * tile_bytes;
        for (std::int64_t row = 0; row < rows; row += 2) {
            const Floats even = power_of_two(load_vector(score(row)) * rest_of_factor - largest);
            const Floats odd = power_of_two(load_vector(score(row + 1)) * rest_of_factor - largest);
            total += even + odd;
            store_pairs(weights + row / 2 * 64, even, odd);
        }
        store_vector(sum, total);
    }
}

/// One block of queries against all keys that it sees; memory.keys and memory.values hold blocks from
/// `first_packed`.
template <class Unit>
void attend(const Attention& op, std::int64_t head_index, std::int64_t first_token, std::int64_t length,
            std::int64_t query_block, std::int64_t first_packed, const Memory& memory) {
    const HeadTiles head{op.q.size(2)};
    const Block queries(query_block, length);
    pack_tokens<Operand::right>(HeadRows<const bf16>(op.q, head_index), first_token, queries, memory.queries);
    const float factor = op.scale * log2_of_e;
    RunningSoftmax running;
    const std::int64_t first_key = op.window > 0 ? larger(0, queries.first - op.window + 1) : 0;
    // From the diagonal backwards: then every query has seen a key, itself, from the first block on.
    for (std::int64_t key_block = query_block; key_block >= first_key / block_tokens; --key_block) {
        const Block keys(key_block, length);
        const bool first = key_block == query_block;
        // Tiles that the product skips must not hold NaN: they are hidden, but read.
        if (keys.count < block_tokens) __builtin_memset(memory.scores, 0, score_floats * sizeof(float));
        const std::int64_t slot = key_block - first_packed;
        multiply<Unit>({.left = memory.keys + slot * head.tokens_by_depth_bytes(),
                        .left_pitch = head.steps() * tile_bytes,
                        .right = memory.queries,
                        .right_pitch = head.steps() * tile_bytes,
                        .steps = head.steps(),
                        .sums = memory.scores,
                        .sums_pitch = block_tiles * tile_floats,
                        .add = false},
                       keys.tiles(), queries.tiles());
        softmax_step(Band::of_keys(keys.first, queries.first, op.window), keys, queries, factor, first, head,
                     running, memory);
        multiply<Unit>({.left = memory.values + slot * head.head_by_tokens_bytes(),
                        .left_pitch = keys.steps() * tile_bytes,
                        .right = memory.weights,
                        .right_pitch = keys.steps() * tile_bytes,
                        .steps = keys.steps(),
                        .sums = memory.out,
                        .sums_pitch = block_tiles * tile_floats,
                        .add = !first},
                       head.tiles(), queries.tiles());
    }
    float* lse = statistics_of(op.lse, head_index, first_token + queries.first);
    alignas(64) float inverse[block_tokens];
    for (std::int64_t i = 0; i < queries.count; ++i) {
        inverse[i] = 1.f / running.sum[i];
        lse[i] = running.max[i] / log2_of_e + __builtin_logf(running.sum[i]);
    }
    unpack_transposed(HeadRows<bf16>(op.out, head_index), first_token, queries, memory.out, inverse);
}

template <class Unit>
void run_on(const Attention& op, std::byte* const* scratch_of_thread) {
    const std::int64_t heads = op.q.size(1), group = heads / op.k.size(1);
    const HeadTiles head{op.q.size(2)};
    const std::int64_t parts = (blocks_in(op.sequences.row_length) + blocks_of_part - 1) / blocks_of_part;
    for_each_head<Unit>(
        op.sequences, heads, parts,
        [&](std::int64_t first_token, std::int64_t length, std::int64_t head_index, std::int64_t part) {
            const std::int64_t begin = part * blocks_of_part, blocks = blocks_in(length);
            if (begin >= blocks) return;
            const std::int64_t end = smaller(blocks, begin + blocks_of_part);
            const std::int64_t first_key =
                op.window > 0 ? larger(0, begin * block_tokens - op.window + 1) : 0;
            const std::int64_t first_packed = first_key / block_tokens;
            Carver carver(scratch_of_thread[omp_get_thread_num()]);
            const Memory memory(carver, head, end - first_packed);
            const HeadRows<const bf16> k(op.k, head_index / group), v(op.v, head_index / group);
            for (std::int64_t block = first_packed; block < end; ++block) {
                const std::int64_t slot = block - first_packed;
                const Block keys(block, length);
                pack_tokens<Operand::left>(k, first_token, keys,
                                           memory.keys + slot * head.tokens_by_depth_bytes());
                pack_head<Operand::left>(v, first_token, keys,
                                         memory.values + slot * head.head_by_tokens_bytes());
            }
            for (std::int64_t block = begin; block < end; ++block)
                attend<Unit>(op, head_index, first_token, length, block, first_packed, memory);
        },
        [&](std::int64_t head_index, std::int64_t begin, std::int64_t end) {
            zero_tokens(HeadRows<bf16>(op.out, head_index), begin, end);
            for (std::int64_t token = begin; token < end; ++token)
                *statistics_of(op.lse, head_index, token) = 0.f;
        });
}

}  // namespace

std::size_t thread_bytes(const Attention& op) {
    Carver carver(nullptr);
    Memory(carver, HeadTiles{op.q.size(2)}, blocks_in(op.sequences.row_length));
    return carver.used();
}

void run(const Attention& op, TileUnit unit, std::byte* const* scratch_of_thread) {
    if (unit == TileUnit::amx)
        run_on<AmxUnit>(op, scratch_of_thread);
    else
        run_on<VectorUnit>(op, scratch_of_thread);
}

}  // namespace drover::cpu::tiles
