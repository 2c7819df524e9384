#include <gtest/gtest.h>

#include "support/test_backend.h"
#include "train/golden_step.h"

namespace drover {
namespace {

using test::everything;

class Offload : public ::testing::Test {
  protected:
    TrainEngineOptions options(const std::string& optimizer, const Precision& precision, bool offloaded) {
        TrainEngineOptions result = golden_.options(precision);
        result.optimizer = OptimizerSettings::named(optimizer, 0.1);
        result.offload_optimizer = offloaded;
        return result;
    }

    const test::GoldenStep golden_{"gqa_float32"};
    std::unique_ptr<Backend> backend_ = test::make_test_backend();
    const std::vector<Batch> batches_ = {golden_.batch()};
};

/// On a GPU the optimizer's kernels then work on host memory.
TEST_F(Offload, ChangesNothingButThePlace) {
    for (const char* optimizer : {"adamw_torch", "adafactor", "sgd", "adagrad", "rmsprop"})
        for (const Precision& precision : {Precision::fp32(), Precision::with_master(DType::bf16)}) {
            SCOPED_TRACE(testing::Message() << optimizer << ' ' << precision.master);
            const auto here = golden_.engine(*backend_, options(optimizer, precision, false));
            const auto there = golden_.engine(*backend_, options(optimizer, precision, true));
            for (int step = 0; step < 3; ++step) {
                const UpdateResult expected = here->step(batches_, 1e-3), got = there->step(batches_, 1e-3);
                EXPECT_EQ(got.loss, expected.loss) << step;
                EXPECT_EQ(got.gradient_norm, expected.gradient_norm) << step;
            }
            EXPECT_EQ(everything(*there), everything(*here));
        }
}

TEST_F(Offload, IsInThePlanOfTheHost) {
    const Precision precision = Precision::with_master(DType::bf16);
    const auto here = golden_.engine(*backend_, options("adamw_torch", precision, false));
    const auto there = golden_.engine(*backend_, options("adamw_torch", precision, true));
    EXPECT_EQ(here->host_memory_plan().total, 0u);
    for (const MemoryUse use : {MemoryUse::moments, MemoryUse::master}) {
        EXPECT_EQ(there->memory_plan()[use], 0u);
        EXPECT_EQ(there->host_memory_plan()[use], here->memory_plan()[use]);
    }
    EXPECT_EQ(there->memory_plan().total + there->host_memory_plan().total, here->memory_plan().total);
}

}  // namespace
}  // namespace drover
