#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/backend_under_test.h"
#include "backend/run_settings.h"
#include "backend/test_data.h"

/// GPUs differ in the shared memory of a block. With less of it kernels take smaller pieces, or others take
/// over. (With DROVER_TEST_SHARED_MEMORY_KB all tests of backends run so.)
namespace drover::test::shared_memory_test {
namespace {

/// What a block has on an RTX 30 or 40 and an L40S.
constexpr int least_kb = 99;
/// What it has on a Hopper.
constexpr int most_kb = 227;

BackendSettings settings_with_kb(int kb) {
    BackendSettings settings = backend_settings_from_environment();
    settings.gpu_shared_memory_kb = kb;
    return settings;
}

TEST(SharedMemory, NormsGiveTheSameBitsWithLess) {
    if (!tests_use_cuda()) GTEST_SKIP() << "a CPU has one way; DROVER_TEST_DEVICE=cuda runs this";
    for (const DType dtype : activation_types())
        for (const std::int64_t width : {768, 2048, 4096, 8192}) {
            SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << width);
            const Shape shape = {300, width};
            const auto gradients = [&](int kb) {
                Workbench bench(settings_with_kb(kb));
                const Tensor dresidual = bench.make(dtype, shape), dweight = bench.make(DType::f32, {width});
                bench.run(RmsNormBackward{.dy = bench.put(random_normal(dtype, shape, 1)),
                                          .residual_out = bench.put(random_normal(dtype, shape, 2)),
                                          .weight = bench.put(random_normal(dtype, {width}, 3)),
                                          .rstd = bench.put(random_normal(DType::f32, {300}, 4)),
                                          .dresidual = dresidual,
                                          .dweight = dweight});
                std::vector<OwnedTensor> made;
                made.push_back(bench.get(dresidual));
                made.push_back(bench.get(dweight));
                return made;
            };
            const std::vector<OwnedTensor> more = gradients(most_kb), less = gradients(least_kb);
            for (std::size_t i = 0; i < more.size(); ++i) EXPECT_TRUE(same_bits(more[i], less[i])) << i;
        }
}

TEST(SharedMemory, AnyNumberOfExpertsIsSorted) {
    const std::int64_t slots = 5000;
    for (const int kb : {least_kb, most_kb})
        for (const std::int32_t experts : {64, 700, 900, 1100, 2000}) {
            SCOPED_TRACE(testing::Message() << experts << " experts, " << kb << " KiB");
            const OwnedTensor expert_of = random_integers({slots, 1}, 7, 0, experts);
            Workbench bench(settings_with_kb(kb));
            const SortByExpert sort{.experts = bench.put(expert_of),
                                    .offsets = bench.make(DType::i32, {experts + 1}),
                                    .row_of_slot = bench.make(DType::i32, {slots}),
                                    .slot_of_row = bench.make(DType::i32, {slots})};
            bench.run(sort);
            const std::vector<double> of = values(expert_of);
            std::vector<double> order(of.size());
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, {},
                                     [&](double slot) { return of[static_cast<std::size_t>(slot)]; });
            EXPECT_EQ(bench.values_of(sort.slot_of_row), order);
            EXPECT_EQ(bench.values_of(sort.offsets).back(), static_cast<double>(slots));
        }
}

/// Tiles of experts' products that do not fit leave them to cuBLASLt.
TEST(SharedMemory, ProductsOfExpertsDoWithLess) {
    if (!tests_use_cuda()) GTEST_SKIP() << "a CPU has one way; DROVER_TEST_DEVICE=cuda runs this";
    const std::vector<std::int32_t> offsets = {0, 200, 233, 233, 523};
    const std::int64_t rows = 523, in = 520, out = 264;
    const auto product = [&](GroupedGemmMethod method, int kb) {
        BackendSettings settings = settings_with_kb(kb);
        settings.grouped_gemm = method;
        Workbench bench(settings);
        const Tensor y = bench.make(DType::f32, {rows, out});
        bench.run(GroupedGemm{.use = GroupedGemm::Use::forward,
                              .a = bench.put(random_normal(DType::bf16, {rows, in}, 1)),
                              .b = bench.put(random_normal(DType::bf16, {4 * out, in}, 2)),
                              .c = y,
                              .offsets = bench.put(Tensor::of(offsets.data(), {5}))});
        return bench.get(y);
    };
    EXPECT_TRUE(
        same_bits(product(GroupedGemmMethod::kernel, least_kb), product(GroupedGemmMethod::cublas, most_kb)));
}

}  // namespace
}  // namespace drover::test::shared_memory_test
