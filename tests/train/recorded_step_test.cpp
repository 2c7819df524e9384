#include <gtest/gtest.h>

#include "backend/run_settings.h"
#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

/// Steps of one, two and three micro-batches, one of them shorter than the rest, one padded.
std::vector<std::vector<TokenBatch>> steps_of(const test::GoldenStep& golden) {
    const TokenBatch whole = golden.batch();
    TokenBatch shorter = whole.some_rows(0, 1);
    shorter.label_count = shorter.target_count();
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(whole.rows),
                                      static_cast<std::int32_t>(whole.row_length));
    lengths.back() /= 2;
    const TokenBatch padded =
        TokenBatch::right_padded(whole.rows, whole.row_length, whole.ids, whole.ids, lengths);
    return {{whole},
            {whole, whole},
            {whole, whole, shorter},
            {whole},
            {padded, whole},
            {whole, padded, whole},
            {shorter},
            {whole, whole},
            {shorter, whole},
            {whole, shorter, whole},
            {whole, whole, whole},
            {whole}};
}

/// Forward and backward that are replayed leave the bits of those that are enqueued.
TEST(RecordedStep, HasTheSameBits) {
    if (!test::tests_use_cuda()) GTEST_SKIP() << "only a GPU's forward and backward are recorded";
    const std::unique_ptr<Backend> backend = test::make_test_backend();
    for (const char* name : {"gqa_float32", "tied_llama3_bfloat16"})
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
            SCOPED_TRACE(testing::Message() << name << ' ' << static_cast<int>(recompute));
            const test::GoldenStep golden(name);
            const Precision precision = std::string_view(name).ends_with("float32")
                                            ? Precision::fp32()
                                            : Precision::with_master(DType::bf16);
            const auto make = [&] { return golden.engine(*backend, precision, {recompute}); };
            const auto recorded = make();
            const test::ForcedVariable off("DROVER_CUDA_GRAPHS", "0");
            const auto enqueued = make();
            for (int round = 0; round < 3; ++round)
                for (const std::vector<TokenBatch>& batches : steps_of(golden)) {
                    const StepResult expected = enqueued->step(batches, 1e-3),
                                     got = recorded->step(batches, 1e-3);
                    ASSERT_EQ(got.loss, expected.loss) << round;
                    ASSERT_EQ(got.gradient_norm, expected.gradient_norm) << round;
                }
            EXPECT_EQ(test::everything(*recorded), test::everything(*enqueued));
        }
}

}  // namespace
}  // namespace drover
