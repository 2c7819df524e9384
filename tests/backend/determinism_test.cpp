#include <gtest/gtest.h>

#include "backend/every_operation.h"
#include "backend/run_settings.h"

namespace drover::test::determinism_test {
namespace {

TEST(EveryOperation, HasACase) {
    // Attention has similar tests in its own files.
    std::set<std::string_view> run = {"attention", "attention_backward", "cached_attention"};
    for (const OperationCase& operation : every_operation({DType::f32})) {
        Workbench bench;
        operation.run(bench);
        run.insert(bench.operations_run().begin(), bench.operations_run().end());
    }
#define DROVER_EXPECT_RUN(name, Listed) EXPECT_TRUE(run.contains(#name)) << #name;
    DROVER_KERNEL_OPERATIONS(DROVER_EXPECT_RUN)
#undef DROVER_EXPECT_RUN
}

TEST(Determinism, BitsDoNotDependOnTheNumberOfThreads) {
    for (const OperationCase& operation : every_operation(activation_types())) {
        const auto with_threads = [&](int count) {
            const Threads threads(count);
            Workbench bench;
            return operation.run(bench);
        };
        const std::vector<OwnedTensor> one = with_threads(1);
        for (int count : {2, 3}) {
            const std::vector<OwnedTensor> several = with_threads(count);
            ASSERT_EQ(one.size(), several.size());
            for (std::size_t i = 0; i < one.size(); ++i)
                EXPECT_TRUE(same_bits(one[i], several[i]))
                    << operation.name << ", output " << i << ", " << count;
        }
    }
}

TEST(CpuBackend, InstructionSetsAgree) {
    const std::vector<CpuInstructions> wider = wider_instruction_sets();
    if (wider.empty()) GTEST_SKIP() << "this processor has one instruction set only";
    for (const OperationCase& operation : every_operation({DType::f32, DType::bf16})) {
        const auto with_instructions = [&](CpuInstructions instructions) {
            Workbench bench(make_cpu_backend(settings_with(instructions)));
            return operation.run(bench);
        };
        const std::vector<OwnedTensor> narrow = with_instructions(CpuInstructions::avx2);
        // For very few elements, the last digit of fp32 decides how bf16 rounds.
        const double tolerance = operation.dtype == DType::f32 ? 1e-6 : 2e-4;
        for (const CpuInstructions instructions : wider) {
            const int name = static_cast<int>(instructions);
            const std::vector<OwnedTensor> wide = with_instructions(instructions);
            ASSERT_EQ(narrow.size(), wide.size());
            for (std::size_t i = 0; i < narrow.size(); ++i)
                EXPECT_LE(relative_error(narrow[i], wide[i]), tolerance)
                    << operation.name << ", output " << i << ", " << name;
        }
    }
}

TEST(CpuBackend, DescriptionNamesInstructionsAndThreads) {
    const BackendSettings avx2 = settings_with(CpuInstructions::avx2);
    const Threads threads(1);
    EXPECT_EQ(make_cpu_backend(avx2)->description(), "CPU, AVX2, 1 thread");
    const Threads more(3);
    EXPECT_EQ(make_cpu_backend(avx2)->description(), "CPU, AVX2, 3 threads");
}

}  // namespace
}  // namespace drover::test::determinism_test
