#include "backend/cuda/gpu.h"

#include <gtest/gtest.h>

#include "backend/cuda/cudnn_attention_problem.h"

namespace drover::test::gpu_test {
namespace {

using namespace cuda;

constexpr Capability a100{8, 0}, rtx_3090{8, 6}, l40s{8, 9}, h100{9, 0}, b200{10, 0}, rtx_5090{12, 0};
/// The codes of a release, as they say of themselves.
constexpr RunningCode of_80{{8, 0}}, of_86{{8, 6}}, of_89{{8, 9}}, of_90a{{9, 0}, true}, ptx_of_90{{9, 0}};

/// "driver", "early" and "hopper" where they are so.
std::string use(const RunningCode& code, Capability gpu) {
    const CodeUse of = use_of(code, gpu);
    return std::string(of.compiled_by_driver ? " driver" : "") + (of.starts_early ? " early" : "") +
           (of.hopper_products ? " hopper" : "");
}

TEST(GpuCode, EveryGpuOfAReleaseUsesItsOwn) {
    EXPECT_EQ(use(of_80, a100), "");
    EXPECT_EQ(use(of_86, rtx_3090), "");
    EXPECT_EQ(use(of_89, l40s), "");
    EXPECT_EQ(use(of_90a, h100), " early hopper");
    EXPECT_EQ(use(ptx_of_90, b200), " driver early");
    EXPECT_EQ(use(ptx_of_90, rtx_5090), " driver early");
}

TEST(GpuCode, MachineCodeRunsOnLaterMinorVersions) {
    EXPECT_EQ(use(of_80, rtx_3090), "");
    EXPECT_EQ(use(of_80, l40s), "");
}

TEST(GpuCode, HopperRunsOtherCodeWithoutItsProducts) {
    // PTX of 9.0, which the driver prefers to machine code when told to (CUDA_FORCE_PTX_JIT).
    EXPECT_EQ(use(ptx_of_90, h100), " early");
    // Kernels of older code do not wait for each other.
    EXPECT_EQ(use(of_80, h100), " driver");
    EXPECT_EQ(use(of_80, b200), " driver");
}

TEST(GpuCode, HoppersProductsAreOfHopperAlone) {
    for (const Capability gpu : {a100, l40s, Capability{9, 1}, b200, rtx_5090})
        EXPECT_FALSE(use_of(of_90a, gpu).hopper_products) << text_of(gpu);
}

TEST(GpuCode, NamesOfArchitectures) {
    EXPECT_EQ(architecture_of(a100), "80");
    EXPECT_EQ(architecture_of(rtx_3090), "86");
    EXPECT_EQ(architecture_of(h100), "90a");
    EXPECT_EQ(architecture_of(rtx_5090), "120");
    EXPECT_EQ(text_of({12, 1}), "12.1");
}

TEST(Gpu, AgesAreOrdered) {
    EXPECT_LT((Capability{7, 5}), oldest_capability);
    EXPECT_FALSE(a100 < oldest_capability);
    // FP8 products begin with Ada.
    EXPECT_LT(a100, oldest_with_fp8);
    EXPECT_LT(rtx_3090, oldest_with_fp8);
    for (const Capability gpu : {l40s, h100, b200, rtx_5090}) EXPECT_GE(gpu, oldest_with_fp8);
}

TEST(Gpu, SettingsOnlyLowerItsSharedMemory) {
    EXPECT_EQ(shared_memory_within(227 << 10, std::nullopt), 227 << 10);
    EXPECT_EQ(shared_memory_within(227 << 10, 99), 99 << 10);
    EXPECT_EQ(shared_memory_within(99 << 10, 163), 99 << 10);
}

TEST(Gpu, AttentionOfGivenSequencesMustRepeat) {
    for (const Capability gpu : {a100, rtx_3090, l40s, rtx_5090})
        EXPECT_FALSE(cudnn::repeats_given_sequences(gpu)) << text_of(gpu);
    for (const Capability gpu : {h100, b200})
        EXPECT_TRUE(cudnn::repeats_given_sequences(gpu)) << text_of(gpu);
}

}  // namespace
}  // namespace drover::test::gpu_test
