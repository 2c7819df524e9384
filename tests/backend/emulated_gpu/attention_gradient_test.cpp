#include "backend/cuda/kernels/attention_gradient.cuh"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "backend/attention_expectations.h"

/// The kernels of attention's gradients on Hopper, on the emulated GPU.
namespace drover::test::attention_gradient_test {
namespace {

using namespace cuda::attention_gradient;
using emulated_gpu::Schedule;

struct Case {
    AttentionBatch batch;
    Schedule schedule{};
    DType dtype = DType::bf16;
    int key_heads = 0;  ///< that are worked on at a time; 0: all
    unsigned blocks = 5;

    friend void PrintTo(const Case& own, std::ostream* out) {
        *out << testing::PrintToString(own.batch) << (own.schedule.late ? ", late" : "") << ", "
             << own.schedule.resident << " blocks, " << name_of(own.dtype);
    }
};

/// As the kernel list_tiles lists them; the last one has no tokens.
std::vector<SequenceTile> tiles_of(const AttentionBatch& batch, int key_heads) {
    Ranges sequences = batch.sequences;
    if (sequences.empty())
        for (std::int64_t row = 0; row < batch.rows; ++row)
            sequences.emplace_back(row * batch.row_length, batch.row_length);
    std::vector<int> first_number = {0};
    for (const auto& [begin, length] : sequences)
        first_number.push_back(first_number.back() + (length + tile_keys - 1) / tile_keys);
    const auto count = static_cast<int>(sequences.size());
    const int together = sequences_together(count, key_heads);
    std::vector<SequenceTile> tiles(static_cast<std::size_t>(first_number.back()) + 1);
    for (int own = 0; own < count; ++own) {
        const auto& [begin, length] = sequences[static_cast<std::size_t>(own)];
        const int first = first_number[static_cast<std::size_t>(own)];
        for (int i = 0; i * tile_keys < length; ++i) {
            SequenceTile& tile =
                tiles[static_cast<std::size_t>(place_in_order(first_number.data(), count, together, own, i))];
            if (tile.length != 0) throw std::logic_error("two tiles in one place");
            tile = {.begin = begin, .length = length, .number = first + i, .first_number = first};
        }
    }
    return tiles;
}

Place place_of(const Tensor& tensor) {
    return {.start = tensor.raw(), .token_stride = tensor.stride(0), .head_stride = tensor.stride(1)};
}

CUtensorMap map_of(const Tensor& x, std::int64_t tokens) {
    return cuda::emulated_map(2, {.start = x.raw(),
                                  .sizes = {x.size(2), x.size(0), x.size(1)},
                                  .byte_strides = {2 * x.stride(0), 2 * x.stride(1)},
                                  .box = {64, tokens}});
}

struct Gradients {
    OwnedTensor dq, dk, dv;
};

/// dq, dk and dv on the emulated GPU; `out` and `lse` are those of the reference.
template <class T, int head>
Gradients compute(const Case& own, const AttentionInputs& in, const AttentionReference& reference) {
    using Sizes = TileSizes<head>;
    const AttentionBatch& batch = own.batch;
    const std::vector<float> exact_out(reference.out.begin(), reference.out.end()),
        lse(reference.lse.begin(), reference.lse.end());
    const OwnedTensor out =
        OwnedTensor::converted(Tensor::of(exact_out.data(), batch.query_shape()), own.dtype);
    // Nothing is written at tokens in no sequence.
    const auto zeros = [&](const drover::Shape& shape) {
        OwnedTensor made(own.dtype, shape);
        std::memset(made.tensor().raw(), 0, made.tensor().bytes());
        return made;
    };
    Gradients found{zeros(batch.query_shape()), zeros(batch.key_shape()), zeros(batch.key_shape())};

    const int key_heads = own.key_heads > 0 ? own.key_heads : static_cast<int>(batch.kv_heads);
    const std::vector<SequenceTile> tiles = tiles_of(batch, key_heads);
    const int group = static_cast<int>(batch.heads / batch.kv_heads);
    const std::size_t blocks =
        tiles.size() * Sizes::blocks_of_tile * static_cast<std::size_t>(key_heads * group);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> statistics(blocks * Sizes::statistics_of_step + 4, nan),
        sums(blocks * Sizes::sums_of_step + 4, nan);
    std::vector<int> turns(blocks, 77);
    const auto aligned = [](float* start) {
        return reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(start) + 15) / 16 * 16);
    };
    int tickets = 77;
    const auto tile_count = static_cast<unsigned>(tiles.size());
    const auto rows = static_cast<int>(batch.rows);
    Problem problem{.tiles = {.tiles = batch.sequences.empty() ? nullptr : tiles.data(),
                              .count = static_cast<int>(tile_count) - 1,
                              .sequences = rows,
                              .length = static_cast<int>(batch.row_length),
                              .together = sequences_together(rows, key_heads)},
                    .first_key_head = 0,
                    .key_heads = key_heads,
                    .group = group,
                    .head_size = static_cast<int>(batch.head_size),
                    .window = static_cast<int>(batch.window),
                    .scale = batch.scale(),
                    .dq = place_of(found.dq),
                    .dk = place_of(found.dk),
                    .dv = place_of(found.dv),
                    .statistics = aligned(statistics.data()),
                    .sums = aligned(sums.data()),
                    .turns = turns.data(),
                    .tickets = &tickets};
    const StatisticsInputs inputs{.out = place_of(out),
                                  .dout = place_of(in.dout),
                                  .lse = lse.data(),
                                  .heads = static_cast<int>(batch.heads),
                                  .row_length = static_cast<int>(batch.row_length)};
    const Maps maps{.q = map_of(in.q, Sizes::step_queries),
                    .k = map_of(in.k, tile_keys),
                    .v = map_of(in.v, tile_keys),
                    .dout = map_of(in.dout, Sizes::step_queries)};
    for (; problem.first_key_head < batch.kv_heads; problem.first_key_head += key_heads) {
        emulated_gpu::run({tile_count, static_cast<unsigned>(problem.heads())}, preparing_threads, 0,
                          own.schedule, [&] { prepare<T, head>(problem, inputs); });
        emulated_gpu::run({tile_count * static_cast<unsigned>(key_heads)}, threads, sizeof(Memory<head>),
                          own.schedule, [&] { compute_gradients<T, head>(maps, problem); });
    }
    return found;
}

Gradients compute(const Case& own, const AttentionInputs& in, const AttentionReference& reference) {
    const bool narrow = own.batch.head_size <= 64;
    if (own.dtype == DType::f16)
        return narrow ? compute<cuda::half_t, 64>(own, in, reference)
                      : compute<cuda::half_t, 128>(own, in, reference);
    return narrow ? compute<cuda::bfloat_t, 64>(own, in, reference)
                  : compute<cuda::bfloat_t, 128>(own, in, reference);
}

class AttentionGradient : public testing::TestWithParam<Case> {};

TEST_P(AttentionGradient, IsRight) {
    const Case& own = GetParam();
    const AttentionInputs inputs(own.batch, own.dtype, 11);
    const AttentionReference expected(own.batch, inputs);
    fill_gaps(own.batch, inputs);
    const Gradients found = compute(own, inputs, expected);
    const double tolerance = attention_tolerance(own.dtype);
    expect_close(own.batch, found.dq, expected.dq, tolerance, "dq");
    expect_close(own.batch, found.dk, expected.dk, tolerance, "dk");
    expect_close(own.batch, found.dv, expected.dv, tolerance, "dv");
}

/// Sequences of 3, 1, 0, 2 and 2 tiles; and the shares of many.
TEST(AttentionGradientOrder, GoesThroughTheFirstTilesOfAFewSequences) {
    constexpr int first_number[] = {0, 3, 4, 4, 6, 8};
    const auto order_of = [&](int together) {
        std::vector<int> order(8);
        for (int sequence = 0; sequence < 5; ++sequence)
            for (int number = first_number[sequence]; number < first_number[sequence + 1]; ++number)
                order[static_cast<std::size_t>(place_in_order(first_number, 5, together, sequence,
                                                              number - first_number[sequence]))] = number;
        return order;
    };
    EXPECT_EQ(order_of(1), (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(order_of(2), (std::vector{0, 3, 1, 2, 4, 5, 6, 7}));
    EXPECT_EQ(order_of(3), (std::vector{0, 3, 1, 2, 4, 6, 5, 7}));
    EXPECT_EQ(order_of(5), (std::vector{0, 3, 4, 6, 1, 5, 7, 2}));

    // Sequences of the same length need no list.
    std::vector<int> numbers;
    for (const TileList list{.count = 9, .sequences = 3, .length = 3 * tile_keys - 5, .together = 2};
         numbers.size() < 9;)
        numbers.push_back(list[static_cast<int>(numbers.size())].number);
    EXPECT_EQ(numbers, (std::vector{0, 3, 1, 4, 2, 5, 6, 7, 8}));

    EXPECT_EQ(sequences_together(4, 8), 4);
    EXPECT_EQ(sequences_together(16, 12), 4);
    EXPECT_EQ(sequences_together(8, 32), 1);
    EXPECT_EQ(sequences_together(3, 64), 1);
    EXPECT_EQ(sequences_together(7, 8), 4);
    EXPECT_EQ(sequences_together(100, 1), 34);
}

/// Whatever runs first, and however many blocks run at a time.
TEST(AttentionGradientOrder, DoesNotChangeABit) {
    for (const std::int64_t head_size : {64, 128}) {
        SCOPED_TRACE(head_size);
        Case own{{.rows = 1, .row_length = 700, .heads = 2, .kv_heads = 1, .head_size = head_size}};
        const AttentionInputs inputs(own.batch, own.dtype, 13);
        const AttentionReference reference(own.batch, inputs);
        const Gradients once = compute(own, inputs, reference);
        for (const Schedule schedule :
             {Schedule{.seed = 5, .resident = 6}, Schedule{.seed = 6, .late = true, .resident = 6}}) {
            own.schedule = schedule;
            expect_same_gradients(compute(own, inputs, reference), once);
        }
    }
}

constexpr Schedule late{.seed = 2, .late = true, .resident = 3};
INSTANTIATE_TEST_SUITE_P(
    Batches, AttentionGradient,
    testing::Values(
        Case{{.rows = 1, .row_length = 128, .heads = 1, .kv_heads = 1, .head_size = 128}},
        Case{{.rows = 1, .row_length = 128, .heads = 1, .kv_heads = 1, .head_size = 64}},
        Case{{.rows = 2, .row_length = 300, .heads = 2, .kv_heads = 1, .head_size = 128}, late},
        Case{{.rows = 2, .row_length = 300, .heads = 2, .kv_heads = 1, .head_size = 64}, late},
        Case{{.rows = 1, .row_length = 513, .heads = 2, .kv_heads = 2, .head_size = 96}, {.resident = 4}},
        Case{{.rows = 1, .row_length = 400, .heads = 4, .kv_heads = 2, .head_size = 128, .window = 130},
             late},
        Case{{.rows = 1, .row_length = 640, .heads = 1, .kv_heads = 1, .head_size = 64, .window = 70}, late},
        Case{{.rows = 2,
              .row_length = 256,
              .heads = 4,
              .kv_heads = 2,
              .head_size = 40,
              .sequences = {{0, 1}, {3, 140}, {150, 100}, {256, 129}, {390, 122}}},
             late},
        Case{{.rows = 1,
              .row_length = 320,
              .heads = 2,
              .kv_heads = 1,
              .head_size = 128,
              .sequences = {{10, 200}, {210, 7}, {217, 90}}},
             late,
             DType::f16},
        Case{{.rows = 1, .row_length = 200, .heads = 4, .kv_heads = 4, .head_size = 64},
             late,
             DType::f16,
             2}));

}  // namespace
}  // namespace drover::test::attention_gradient_test
