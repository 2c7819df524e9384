#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/backend_under_test.h"
#include "backend/test_data.h"

namespace drover::test::cached_attention_test {
namespace {

/// Sequences that grow together, in pieces.
struct Growth {
    std::int64_t sequences, length, heads, kv_heads, head_size, window;
};

/// Tokens [begin, end) of all sequences, one sequence after the other.
struct Piece {
    std::int64_t begin, end;
};

class Grown {
  public:
    Grown(const Growth& growth, DType dtype)
        : g_(growth),
          columns_((g_.heads + 2 * g_.kv_heads) * g_.head_size),
          all_(random_normal(dtype, {g_.sequences * g_.length, columns_}, 5)) {}

    /// The outputs of all tokens [sequences·length,heads·D] when they are processed in these pieces.
    std::vector<double> run(Workbench& bench, const std::vector<Piece>& pieces) const {
        const DType dtype = all_.tensor().dtype();
        const Shape cache = {g_.sequences, g_.length + 3, g_.kv_heads, g_.head_size};
        const Tensor keys = bench.make(dtype, cache), values = bench.make(dtype, cache);
        const std::int64_t width = g_.heads * g_.head_size;
        std::vector<double> out(static_cast<std::size_t>(g_.sequences * g_.length * width));
        for (const Piece& piece : pieces) {
            std::vector<std::int32_t> sequence_of, positions;
            for (std::int64_t s = 0; s < g_.sequences; ++s)
                for (std::int64_t t = piece.begin; t < piece.end; ++t) {
                    sequence_of.push_back(static_cast<std::int32_t>(s));
                    positions.push_back(static_cast<std::int32_t>(t));
                }
            const auto count = static_cast<std::int64_t>(positions.size());
            OwnedTensor rows(dtype, {count, columns_});
            for (std::int64_t i = 0; i < count; ++i) {
                const auto n = static_cast<std::size_t>(i);
                const Tensor from = all_.tensor().rows(sequence_of[n] * g_.length + positions[n], 1);
                std::memcpy(rows.tensor().rows(i, 1).raw(), from.raw(), from.bytes());
            }
            const Tensor qkv = bench.put(rows);
            const auto part = [&](std::int64_t first_head, std::int64_t heads) {
                return qkv.columns(first_head * g_.head_size, heads * g_.head_size)
                    .split_columns(heads, g_.head_size);
            };
            const Tensor result = bench.make(dtype, {count, g_.heads, g_.head_size});
            bench.run(CachedAttention{.q = part(0, g_.heads),
                                      .k = part(g_.heads, g_.kv_heads),
                                      .v = part(g_.heads + g_.kv_heads, g_.kv_heads),
                                      .key_cache = keys,
                                      .value_cache = values,
                                      .sequence_of = bench.put(Tensor::of(sequence_of.data(), {count})),
                                      .positions = bench.put(Tensor::of(positions.data(), {count})),
                                      .out = result,
                                      .scale = 0.3f,
                                      .window = g_.window});
            const std::vector<double> found = bench.values_of(result);
            for (std::int64_t i = 0; i < count; ++i) {
                const auto n = static_cast<std::size_t>(i);
                std::copy_n(found.begin() + i * width, width,
                            out.begin() + (sequence_of[n] * g_.length + positions[n]) * width);
            }
        }
        return out;
    }

    std::vector<double> expected() const {
        const std::vector<double> x = values(all_);
        const auto at = [&](std::int64_t sequence, std::int64_t token, std::int64_t head, std::int64_t i) {
            return x[static_cast<std::size_t>((sequence * g_.length + token) * columns_ +
                                              head * g_.head_size + i)];
        };
        std::vector<double> out;
        for (std::int64_t s = 0; s < g_.sequences; ++s)
            for (std::int64_t t = 0; t < g_.length; ++t)
                for (std::int64_t h = 0; h < g_.heads; ++h) {
                    const std::int64_t key_head = g_.heads + h / (g_.heads / g_.kv_heads);
                    const std::int64_t first =
                        g_.window > 0 ? std::max<std::int64_t>(0, t - g_.window + 1) : 0;
                    std::vector<double> weights;
                    double sum = 0;
                    for (std::int64_t j = first; j <= t; ++j) {
                        double score = 0;
                        for (std::int64_t i = 0; i < g_.head_size; ++i)
                            score += at(s, t, h, i) * at(s, j, key_head, i);
                        weights.push_back(std::exp(0.3 * score));
                        sum += weights.back();
                    }
                    for (std::int64_t i = 0; i < g_.head_size; ++i) {
                        double value = 0;
                        for (std::int64_t j = first; j <= t; ++j)
                            value += weights[static_cast<std::size_t>(j - first)] / sum *
                                     at(s, j, key_head + g_.kv_heads, i);
                        out.push_back(value);
                    }
                }
        return out;
    }

  private:
    Growth g_;
    std::int64_t columns_;
    OwnedTensor all_;
};

TEST(CachedAttention, IsAttentionOverTheWholePast) {
    Workbench bench;
    for (const Growth& growth :
         {Growth{1, 9, 4, 2, 8, 0}, Growth{3, 20, 6, 2, 10, 0}, Growth{2, 300, 4, 1, 16, 0},
          Growth{2, 40, 4, 4, 8, 7}, Growth{1, 270, 2, 1, 64, 150}, Growth{1, 5, 1, 1, 130, 1}})
        for (const DType dtype : activation_types()) {
            const Grown grown(growth, dtype);
            const std::vector<double> found = grown.run(bench, {{0, growth.length}});
            EXPECT_LE(relative_error(found, grown.expected()), dtype == DType::f32 ? 1e-6 : 1.5 / 256)
                << growth.length << " " << growth.window << " " << name_of(dtype);
        }
}

TEST(CachedAttention, PiecesGiveTheSameBits) {
    Workbench bench;
    for (const DType dtype : activation_types()) {
        const Grown grown({2, 150, 4, 2, 12, 0}, dtype);
        const std::vector<double> whole = grown.run(bench, {{0, 150}});
        EXPECT_EQ(grown.run(bench, {{0, 60}, {60, 61}, {61, 149}, {149, 150}}), whole);
        std::vector<Piece> single;
        for (std::int64_t i = 0; i < 150; ++i) single.push_back({i, i + 1});
        EXPECT_EQ(grown.run(bench, single), whole);
    }
}

TEST(CachedAttention, OperandsAreChecked) {
    Workbench bench;
    const Tensor q = bench.make(DType::f32, {2, 4, 8}), k = bench.make(DType::f32, {2, 2, 8});
    const Tensor cache = bench.make(DType::f32, {1, 6, 2, 8}), index = bench.put<std::int32_t>({0, 1});
    CachedAttention op{.q = q,
                       .k = k,
                       .v = k,
                       .key_cache = cache,
                       .value_cache = cache,
                       .sequence_of = index,
                       .positions = index,
                       .out = q};
    EXPECT_EQ(op.cost().flops, 4 * 2 * 4 * 8 * 6);
    op.window = 5;
    EXPECT_EQ(op.cost().flops, 4 * 2 * 4 * 8 * 5);
    op.value_cache = bench.make(DType::f32, {1, 5, 2, 8});
    EXPECT_DEATH(bench.run(op), "cached_attention: value_cache");
}

}  // namespace
}  // namespace drover::test::cached_attention_test
