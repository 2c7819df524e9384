#pragma once

#include "backend/cpu/kernels/attention_parts.h"
#include "backend/cpu/tiles/pack.h"

/// Shared by attention's forward and backward in tiles: blocks of 64 tokens, their packed operands, and the
/// conversion of weights back into operands.
namespace drover::cpu::tiles {

/// Tokens of a block of queries or keys, and its tiles.
inline constexpr std::int64_t block_tokens = 64;
inline constexpr std::int64_t block_tiles = block_tokens / tile_width;
/// A block of keys × a block of queries: [key tile][query tile][16][16] sums, or as many bf16 in operand
/// tiles.
inline constexpr std::int64_t score_floats = block_tokens * block_tokens;
inline constexpr std::int64_t score_bytes = block_tokens * block_tokens * sizeof(bf16);

/// A block of `count` ≤ 64 consecutive tokens of a sequence.
struct Block {
    std::int64_t first;  ///< position in the sequence
    std::int64_t count;

    Block(std::int64_t index, std::int64_t length)
        : first(index * block_tokens), count(smaller(block_tokens, length - first)) {}
    std::int64_t tiles() const { return (count + tile_width - 1) / tile_width; }
    std::int64_t steps() const { return (count + tile_depth - 1) / tile_depth; }
};

/// Sizes that follow from the head size.
struct HeadTiles {
    std::int64_t size;

    std::int64_t tiles() const { return (size + tile_width - 1) / tile_width; }
    std::int64_t steps() const { return (size + tile_depth - 1) / tile_depth; }
    /// A block's tokens as the width of an operand, the head as its depth; and the other way round.
    std::int64_t tokens_by_depth_bytes() const { return block_tiles * steps() * tile_bytes; }
    std::int64_t head_by_tokens_bytes() const { return tiles() * (block_tokens / tile_depth) * tile_bytes; }
    /// fp32 sums of a block's tokens × the head.
    std::int64_t sum_floats() const { return block_tiles * tiles() * tile_floats; }
};

/// Cuts a block of memory into pieces; from null it only measures.
class Carver {
  public:
    explicit Carver(std::byte* memory) : next_(memory), begin_(memory) {}

    template <class T>
    T* take(std::int64_t count) {
        auto* piece = reinterpret_cast<T*>(next_);
        next_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
        return piece;
    }
    std::size_t used() const { return static_cast<std::size_t>(next_ - begin_); }

  private:
    std::byte* next_;
    std::byte* begin_;
};

/// The tokens of a block, width of the operand, by the head, its depth.
template <Operand operand>
inline void pack_tokens(const HeadRows<const bf16>& head, std::int64_t first_token, const Block& block,
                        std::byte* to) {
    pack<operand>({head.row(first_token + block.first), head.stride, false}, block.count, head.head_size, to);
}

/// The head, width of the operand, by the tokens of a block, its depth.
template <Operand operand>
inline void pack_head(const HeadRows<const bf16>& head, std::int64_t first_token, const Block& block,
                      std::byte* to) {
    pack<operand>({head.row(first_token + block.first), head.stride, true}, head.head_size, block.count, to);
}

/// 2^x for x ≤ 0 within 2e-7; 0 for very negative x.
[[gnu::always_inline]] inline Floats power_of_two(Floats x) {
    const Floats whole = _mm512_maskz_roundscale_ps(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Floats rest = x - whole;                 // within ± 0.5
    Floats power = splat(0.0013276472134303087f);  // minimax of degree 5
    power = power * rest + 0.009675541450763986f;
    power = power * rest + 0.05550713274077898f;
    power = power * rest + 0.2402211972169668f;
    power = power * rest + 0.693146967063768f;
    power = power * rest + 1.0000000716551163f;
    return _mm512_maskz_scalef_ps(0xFFFF, power, whole);
}

inline constexpr float log2_of_e = 1.4426950408889634f;
/// Used instead of minus infinity where differences must not become NaN.
inline constexpr float hidden_score = -1e30f;

/// Two rows of fp32 rounded to bf16, as a row of a right operand: pairs of depth.
[[gnu::always_inline]] inline void store_pairs(std::byte* to, Floats even, Floats odd) {
    const auto half = [](Floats x) { return widen(bits_as<HalfWords>(_mm512_cvtneps_pbh(x))); };
    const Words pairs = half(even) | (half(odd) << 16);
    __builtin_memcpy(to, &pairs, sizeof pairs);
}

/// Two neighbouring vectors of one row, as a row of a left operand: 32 elements of depth.
[[gnu::always_inline]] inline void store_row(std::byte* to, Floats first, Floats second) {
    const __m512bh row = _mm512_cvtne2ps_pbh(second, first);
    __builtin_memcpy(to, &row, sizeof row);
}

/// The columns [16·tile, 16·tile + 16) of row r of a block of sums /*[row tile][column tiles][16][16]*/.
[[gnu::always_inline]] inline float* sums_at(float* sums, std::int64_t row, std::int64_t column_tile,
                                             std::int64_t column_tiles) {
    return sums + (row / tile_width * column_tiles + column_tile) * tile_floats +
           row % tile_width * tile_width;
}

/// Writes sums /*[head tile][query tile][16][16]*/ to the tokens of a block, times a factor per token.
inline void unpack_transposed(const HeadRows<bf16>& head, std::int64_t first_token, const Block& block,
                              const float* sums, const float* factors /*[64]*/) {
    for (std::int64_t query_tile = 0; query_tile < block.tiles(); ++query_tile)
        for (std::int64_t begin = 0; begin < head.head_size; begin += tile_width) {
            const float* tile = sums + (begin / tile_width * block_tiles + query_tile) * tile_floats;
            Floats square[lanes];
#pragma GCC unroll 16
            for (int i = 0; i < lanes; ++i) square[i] = load_vector(tile + i * tile_width);
            transpose_square(square);
            const std::int64_t first_query = query_tile * tile_width;
            const std::int64_t queries = smaller(tile_width, block.count - first_query);
            const std::int64_t elements = smaller(tile_width, head.head_size - begin);
            for (std::int64_t i = 0; i < queries; ++i) {
                bf16* to = head.row(first_token + block.first + first_query + i) + begin;
                const Floats scaled = square[i] * factors[first_query + i];
                if (elements == tile_width)
                    store_vector(to, scaled);
                else
                    store(to, Part{0, elements}, scaled);
            }
        }
}

/// Runs body(sequence, head) for `heads` heads of every sequence, each on one thread with `Unit` set up, and
/// gap(head, begin, end) for the tokens in no sequence.
template <class Unit, class Body, class Gap>
void for_each_head(const Sequences& sequences, std::int64_t heads, std::int64_t parts, const Body& body,
                   const Gap& gap) {
    const SequenceCells cells(sequences, block_tokens);
    const std::int64_t tasks = cells.sequence_count() * heads * parts;
#pragma omp parallel
    {
        Unit::begin();
#pragma omp for schedule(dynamic) nowait
        for (std::int64_t task = 0; task < tasks; ++task) {
            // Late parts see the most keys: they come first.
            const std::int64_t part = parts - 1 - task / (cells.sequence_count() * heads);
            const std::int64_t rest = task % (cells.sequence_count() * heads);
            const std::int64_t sequence = rest / heads;
            body(cells.begin(sequence), cells.end(sequence) - cells.begin(sequence), rest % heads, part);
        }
        if (sequences.begin) {
#pragma omp for schedule(static)
            for (std::int64_t cell = 0; cell < cells.count(); ++cell)
                cells.for_each_gap(cell, [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t head = 0; head < heads; ++head) gap(head, begin, end);
                });
        }
        Unit::end();
    }
}

}  // namespace drover::cpu::tiles
