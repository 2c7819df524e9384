#include <gtest/gtest.h>

#include "backend/every_operation.h"
#include "backend/run_settings.h"
#include "support/errors.h"

namespace drover::test {
namespace {

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
    const std::vector<const char*> wider = wider_instruction_sets();
    if (wider.empty()) GTEST_SKIP() << "this processor has one instruction set only";
    for (const OperationCase& operation : every_operation({DType::f32, DType::bf16})) {
        const auto with_instructions = [&](const char* name) {
            const ForcedInstructionSet forced(name);
            Workbench bench(make_cpu_backend());
            return operation.run(bench);
        };
        const std::vector<OwnedTensor> narrow = with_instructions("avx2");
        // A last digit of fp32 may decide how bf16 rounds, for very few elements.
        const double tolerance = operation.dtype == DType::f32 ? 1e-6 : 2e-4;
        for (const char* name : wider) {
            const std::vector<OwnedTensor> wide = with_instructions(name);
            ASSERT_EQ(narrow.size(), wide.size());
            for (std::size_t i = 0; i < narrow.size(); ++i)
                EXPECT_LE(relative_error(narrow[i], wide[i]), tolerance)
                    << operation.name << ", output " << i << ", " << name;
        }
    }
}

TEST(CpuBackend, DescriptionNamesInstructionsAndThreads) {
    const ForcedInstructionSet forced("avx2");
    const Threads threads(1);
    EXPECT_EQ(make_cpu_backend()->description(), "CPU, AVX2, 1 thread");
    const Threads more(3);
    EXPECT_EQ(make_cpu_backend()->description(), "CPU, AVX2, 3 threads");
}

TEST(CpuBackend, UnknownInstructionSetIsAnError) {
    const ForcedInstructionSet forced("sse9");
    expect_error([] { make_cpu_backend(); }, {"DROVER_CPU_ISA is \"sse9\""});
}

}  // namespace
}  // namespace drover::test
