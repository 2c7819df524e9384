#include <gtest/gtest.h>

#include "backend/every_operation.h"
#include "backend/test_data.h"

namespace drover::test::half_precision_test {
namespace {

/// Every operation in float16 compared with the CPU's in float32, on operands that differ only by rounding.
TEST(HalfPrecision, AgreesWithSinglePrecision) {
    if (!tests_use_cuda())
        GTEST_SKIP() << "the CPU computes in float32 and bfloat16 only; DROVER_TEST_DEVICE=cuda runs this";
    const std::vector<OperationCase> half = every_operation({DType::f16}),
                                     single = every_operation({DType::f32});
    const auto plain_name = [](const OperationCase& operation) {
        return operation.name.substr(0, operation.name.rfind(' '));
    };
    for (const OperationCase& expected : single)
        for (const OperationCase& operation : half) {
            if (plain_name(operation) != plain_name(expected) || operation.dtype != DType::f16) continue;
            Workbench device, processor(make_cpu_backend());
            const std::vector<OwnedTensor> found = operation.run(device), right = expected.run(processor);
            ASSERT_EQ(found.size(), right.size()) << operation.name;
            for (std::size_t i = 0; i < found.size(); ++i) {
                // The largest of several close logits may be a different one after rounding.
                if (found[i].tensor().dtype() == DType::i32) continue;
                // A number that float16 rounds may become the next one in FP8, 1/16 away.
                const double tolerance = plain_name(operation).starts_with("fp8") ? 1.0 / 64 : 1.0 / 512;
                EXPECT_LE(relative_error(found[i], right[i]), tolerance)
                    << operation.name << ", output " << i;
            }
        }
}

}  // namespace
}  // namespace drover::test::half_precision_test
