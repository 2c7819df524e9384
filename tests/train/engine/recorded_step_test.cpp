#include <gtest/gtest.h>

#include <algorithm>

#include "support/test_backend.h"
#include "train/golden_lora.h"

namespace drover {
namespace {

/// The batch with different tokens.
Batch shifted(const Batch& batch, int by) {
    std::vector<std::int32_t> ids = batch.ids;
    std::rotate(ids.begin(), ids.begin() + by, ids.end());
    return Batch::full_rows(batch.rows, batch.row_length, ids, ids);
}

/// Steps of one, two and three micro-batches, some of them shorter or padded.
std::vector<std::vector<Batch>> steps_of(const test::GoldenStep& golden) {
    const Batch a = golden.batch(), b = shifted(a, 1), c = shifted(a, 3);
    const Batch shorter = a.some_rows(0, 1);
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(a.rows),
                                      static_cast<std::int32_t>(a.row_length));
    lengths.back() /= 2;
    const Batch padded = Batch::right_padded(a.rows, a.row_length, a.ids, a.ids, lengths);
    return {{a},    {b, a},       {a, b, shorter}, {c},       {padded, b}, {a, padded, c}, {shorter},
            {c, b}, {shorter, a}, {b, shorter, c}, {a, b, c}, {b}};
}

TEST(RecordedStep, HasTheSameBitsWithAdapters) {
    if (!test::tests_use_cuda()) GTEST_SKIP() << "only a GPU's forward and backward are recorded";
    const std::unique_ptr<Backend> recording = test::make_test_backend({.cuda_graphs = true}),
                                   enqueuing = test::make_test_backend({.cuda_graphs = false});
    for (const char* name : {"llama_ranks", "qwen2_rslora", "llama_dora"}) {
        SCOPED_TRACE(name);
        const test::GoldenLora golden(name);
        const TrainEngineOptions options = golden.options(Precision::with_master(DType::bf16));
        const auto recorded = golden.engine(*recording, options),
                   enqueued = golden.engine(*enqueuing, options);
        for (const std::vector<Batch>& batches : steps_of(golden))
            ASSERT_EQ(recorded->step(batches, 1e-3).loss, enqueued->step(batches, 1e-3).loss);
        EXPECT_GT(recorded->recorder().replays(), 0);
        EXPECT_EQ(test::everything(*recorded), test::everything(*enqueued));
    }
}

/// Replayed forward and backward give the same bits as enqueued ones.
TEST(RecordedStep, HasTheSameBits) {
    if (!test::tests_use_cuda()) GTEST_SKIP() << "only a GPU's forward and backward are recorded";
    const std::unique_ptr<Backend> recording = test::make_test_backend({.cuda_graphs = true}),
                                   enqueuing = test::make_test_backend({.cuda_graphs = false});
    for (const char* name : {"gqa_float32", "gqa_bfloat16", "tied_llama3_bfloat16", "qwen3_bfloat16"})
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
            SCOPED_TRACE(testing::Message() << name << ' ' << static_cast<int>(recompute));
            const test::GoldenStep golden(name);
            const Precision precision = std::string_view(name).ends_with("float32")
                                            ? Precision::fp32()
                                            : Precision::with_master(DType::bf16);
            const auto recorded = golden.engine(*recording, precision, {recompute});
            const auto enqueued = golden.engine(*enqueuing, precision, {recompute});
            for (int round = 0; round < 3; ++round)
                for (const std::vector<Batch>& batches : steps_of(golden)) {
                    const UpdateResult expected = enqueued->step(batches, 1e-3),
                                       got = recorded->step(batches, 1e-3);
                    ASSERT_EQ(got.loss, expected.loss) << round;
                    ASSERT_EQ(got.gradient_norm, expected.gradient_norm) << round;
                    if (batches.size() > 1) continue;
                    ASSERT_EQ(recorded->evaluate(batches[0]).loss_sum,
                              enqueued->evaluate(batches[0]).loss_sum);
                }
            // 22 of a round's 24 micro-batches have full rows; the first of each of eight kinds is enqueued.
            EXPECT_GE(recorded->recorder().replays(), 3 * 22 - 8);
            EXPECT_EQ(enqueued->recorder().replays(), 0);
            EXPECT_EQ(test::everything(*recorded), test::everything(*enqueued));
        }
}

}  // namespace
}  // namespace drover
