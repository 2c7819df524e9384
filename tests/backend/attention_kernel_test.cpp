#include <gtest/gtest.h>

#include "backend/attention_expectations.h"

/// Attention's gradients by the kernel of our own (AttentionBackwardMethod::kernel), at sizes for which there
/// is no time to write out every pair.
namespace drover::test::attention_kernel_test {
namespace {

AttentionResults run_with(AttentionBackwardMethod method, const AttentionBatch& batch,
                          const AttentionInputs& inputs) {
    BackendSettings settings = backend_settings_from_environment();
    settings.attention_backward = method;
    Workbench bench(settings);
    return run(bench, batch, inputs);
}

class AttentionKernel : public testing::TestWithParam<AttentionBatch> {
  protected:
    void SetUp() override {
        if (!tests_use_cuda()) GTEST_SKIP() << "skipped, because the tests run without a GPU";
    }
};

TEST_P(AttentionKernel, AgreesWithCudnn) {
    for (DType dtype : {DType::bf16, DType::f16}) {
        SCOPED_TRACE(std::string(name_of(dtype)));
        const AttentionInputs inputs(GetParam(), dtype, 51);
        const AttentionResults theirs = run_with(AttentionBackwardMethod::cudnn, GetParam(), inputs),
                               ours = run_with(AttentionBackwardMethod::kernel, GetParam(), inputs);
        expect_gradients_agree(ours, theirs, attention_tolerance(dtype));
    }
}

TEST_P(AttentionKernel, GivesTheSameBitsAgain) {
    const AttentionInputs inputs(GetParam(), DType::bf16, 61);
    const AttentionResults once = run_with(AttentionBackwardMethod::kernel, GetParam(), inputs);
    for (int i = 0; i < 3; ++i)
        expect_same_gradients(run_with(AttentionBackwardMethod::kernel, GetParam(), inputs), once);
}

INSTANTIATE_TEST_SUITE_P(
    Batches, AttentionKernel,
    testing::Values(
        AttentionBatch{.rows = 2, .row_length = 4096, .heads = 8, .kv_heads = 2, .head_size = 128},
        AttentionBatch{.rows = 1, .row_length = 8192, .heads = 4, .kv_heads = 2, .head_size = 64},
        AttentionBatch{.rows = 16, .row_length = 1024, .heads = 12, .kv_heads = 12, .head_size = 64},
        AttentionBatch{.rows = 1, .row_length = 3001, .heads = 4, .kv_heads = 4, .head_size = 96},
        AttentionBatch{
            .rows = 1, .row_length = 6000, .heads = 8, .kv_heads = 2, .head_size = 128, .window = 1000},
        AttentionBatch{.rows = 2,
                       .row_length = 4000,
                       .heads = 8,
                       .kv_heads = 2,
                       .head_size = 128,
                       .sequences = Ranges{{0, 700}, {700, 1300}, {2000, 1}, {2003, 1900}, {4000, 3500}}}));

}  // namespace
}  // namespace drover::test::attention_kernel_test
