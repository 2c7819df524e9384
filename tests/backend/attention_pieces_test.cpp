#include <gtest/gtest.h>

#include <algorithm>

#include "backend/attention_expectations.h"
#include "backend/cuda/cudnn_attention_problem.h"
#include "backend/run_settings.h"

namespace drover::test::attention_pieces_test {
namespace {

using cuda::cudnn::Chunk;
using cuda::cudnn::Pieces;
using cuda::cudnn::Problem;

// ----------------------------------------------------------------------------------------------------
// how rows are cut

/// A backward without memory.
Problem problem_of(std::int64_t rows, std::int64_t row_length, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t window = 0, bool given_sequences = false, std::int64_t head_size = 128) {
    static std::byte nowhere[16];
    const auto tensor = [&](std::int64_t of_heads) {
        return Tensor(nowhere, DType::bf16, {rows * row_length, of_heads, head_size}, Device::cuda);
    };
    AttentionBackward op{.q = tensor(heads),
                         .k = tensor(kv_heads),
                         .v = tensor(kv_heads),
                         .out = tensor(heads),
                         .dout = tensor(heads),
                         .dq = tensor(heads),
                         .dk = tensor(kv_heads),
                         .dv = tensor(kv_heads),
                         .sequences = {.rows = rows, .row_length = row_length},
                         .window = window};
    if (given_sequences) {
        op.sequences.begin = Tensor(nowhere, DType::i32, {rows}, Device::cuda);
        op.sequences.length = Tensor(nowhere, DType::i32, {rows}, Device::cuda);
    }
    return Problem(op);
}

constexpr std::int64_t limit = BackendSettings::default_attention_piece_mb << 20;

/// Covers every query once, in order, with every key it sees, within the limit.
void expect_whole(const Problem& problem, const Pieces& pieces) {
    std::int64_t covered = 0;
    for (const Chunk& chunk : pieces.chunks) {
        EXPECT_EQ(chunk.first_query, covered);
        covered = chunk.end_query;
        EXPECT_GE(chunk.queries(), 128);
        const std::int64_t seen = problem.window > 0 ? chunk.first_query - problem.window + 1 : 0;
        EXPECT_LE(chunk.first_key, std::max<std::int64_t>(seen, 0));
        EXPECT_LE(cuda::cudnn::score_bytes(chunk.queries(), chunk.keys()) + Pieces::sums_bytes(problem),
                  limit);
    }
    EXPECT_EQ(covered, problem.sequences.row_length);
}

TEST(AttentionPieces, WholeRowsWhileAGroupOfHeadsFits) {
    for (std::int64_t row_length : {1, 4096, 8192, 23040}) {
        const Pieces pieces(problem_of(4, row_length, 32, 8), limit);
        EXPECT_FALSE(pieces.summed) << row_length;
        ASSERT_EQ(pieces.chunks.size(), 1u);
        EXPECT_EQ(pieces.chunks[0].queries(), row_length);
        EXPECT_EQ(pieces.chunks[0].keys(), row_length);
        EXPECT_EQ(pieces.heads, 4 * pieces.key_heads);
        EXPECT_LE(cuda::cudnn::score_bytes(row_length, row_length) * pieces.heads * pieces.batch, limit);
    }
    EXPECT_EQ(Pieces(problem_of(4, 4096, 32, 8), limit).batch, 4);
    EXPECT_EQ(Pieces(problem_of(4, 8192, 32, 8), limit).batch, 1);
    EXPECT_EQ(Pieces(problem_of(4, 16384, 32, 8), limit).key_heads, 2);
    // Queries with their own keys fit up to greater lengths.
    EXPECT_FALSE(Pieces(problem_of(1, 46080, 32, 32), limit).summed);
}

TEST(AttentionPieces, OneHeadAtATimeWhereItsGroupDoesNotFit) {
    const Problem problem = problem_of(2, 32768, 32, 8);
    const Pieces pieces(problem, limit);
    EXPECT_TRUE(pieces.summed);
    EXPECT_EQ(pieces.heads, 1);
    EXPECT_EQ(pieces.key_heads, 1);
    EXPECT_EQ(pieces.batch, 1);
    EXPECT_EQ(pieces.chunks.size(), 1u);
    EXPECT_EQ(pieces.total, 2);
    expect_whole(problem, pieces);
}

TEST(AttentionPieces, LongRowsInFewChunks) {
    for (std::int64_t row_length : {46464, 65536, 100001, 131072, 131073, 524288}) {
        SCOPED_TRACE(row_length);
        const Problem problem = problem_of(1, row_length, 32, 8);
        const Pieces pieces(problem, limit);
        EXPECT_TRUE(pieces.summed);
        expect_whole(problem, pieces);
    }
    EXPECT_EQ(Pieces(problem_of(1, 131072, 32, 8), limit).chunks.size(), 6u);
}

TEST(AttentionPieces, KeysOutsideOfEveryWindowAreLeftOut) {
    const Problem problem = problem_of(1, 131072, 32, 8, 4096);
    const Pieces pieces(problem, limit);
    expect_whole(problem, pieces);
    ASSERT_GE(pieces.chunks.size(), 2u);
    for (const Chunk& chunk : pieces.chunks)
        EXPECT_LT(chunk.first_query - chunk.first_key, 4096 + 128) << chunk.first_query;
}

TEST(AttentionPieces, EmptySequencesAreAddedToGivenOnes) {
    EXPECT_EQ(Pieces(problem_of(3, 1024, 32, 8, 0, true), limit).total, 4);
}

// ----------------------------------------------------------------------------------------------------
// results

BackendSettings small_pieces() {
    BackendSettings settings = backend_settings_from_environment();
    settings.attention_piece_mb = 1;
    return settings;
}

/// The pieces that the settings give.
Pieces pieces_of(const AttentionBatch& b) {
    return Pieces(
        problem_of(b.rows, b.row_length, b.heads, b.kv_heads, b.window, !b.sequences.empty(), b.head_size),
        1 << 20);
}

/// The CPU does not use pieces.
class SmallPieces : public testing::TestWithParam<AttentionBatch> {
  protected:
    static AttentionResults run_cut(const AttentionInputs& inputs) {
        Workbench bench(small_pieces());
        return run(bench, GetParam(), inputs);
    }
};

TEST_P(SmallPieces, AreSeveral) {
    const Pieces pieces = pieces_of(GetParam());
    EXPECT_TRUE(pieces.summed);
    EXPECT_GT(pieces.chunks.size(), 1u);
    for (const Chunk& chunk : pieces.chunks) EXPECT_GE(chunk.queries(), 128);
}

TEST_P(SmallPieces, GiveTheRightGradients) {
    Workbench bench(small_pieces());
    for (DType dtype : attention_types()) expect_right(bench, GetParam(), dtype);
}

TEST_P(SmallPieces, AgreeWithWholeRows) {
    for (DType dtype : attention_types()) {
        SCOPED_TRACE(std::string(name_of(dtype)));
        const AttentionInputs inputs(GetParam(), dtype, 31);
        Workbench bench;
        const AttentionResults whole = run(bench, GetParam(), inputs), cut = run_cut(inputs);
        EXPECT_TRUE(same_bits(whole.out, cut.out) && same_bits(whole.lse, cut.lse));
        expect_gradients_agree(cut, whole, attention_tolerance(dtype));
    }
}

TEST_P(SmallPieces, GiveTheSameBitsAgain) {
    for (DType dtype : attention_types()) {
        SCOPED_TRACE(std::string(name_of(dtype)));
        const AttentionInputs inputs(GetParam(), dtype, 41);
        expect_same_gradients(run_cut(inputs), run_cut(inputs));
    }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, SmallPieces,
    testing::Values(
        AttentionBatch{.rows = 1, .row_length = 700, .heads = 2, .kv_heads = 2, .head_size = 64},
        AttentionBatch{.rows = 2, .row_length = 640, .heads = 2, .kv_heads = 1, .head_size = 32},
        AttentionBatch{.rows = 1, .row_length = 769, .heads = 2, .kv_heads = 1, .head_size = 128},
        AttentionBatch{
            .rows = 1, .row_length = 700, .heads = 2, .kv_heads = 1, .head_size = 64, .window = 150}));

TEST(AttentionPieces, GivenSequencesThatDoNotFitStillGiveTheRightGradients) {
    Workbench bench(small_pieces());
    const AttentionBatch padded{.rows = 3,
                                .row_length = 700,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_size = 64,
                                .sequences = Ranges{{0, 100}, {700, 690}, {1400, 0}}};
    const AttentionBatch packed{.rows = 1,
                                .row_length = 700,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_size = 64,
                                .window = 90,
                                .sequences = Ranges{{0, 385}, {385, 1}, {390, 310}}};
    for (const AttentionBatch& batch : {padded, packed}) {
        SCOPED_TRACE(batch.rows);
        EXPECT_TRUE(pieces_of(batch).summed);
        for (DType dtype : attention_types()) expect_right(bench, batch, dtype);
    }
}

}  // namespace
}  // namespace drover::test::attention_pieces_test
