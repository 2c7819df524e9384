#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>

#include "backend/adafactor_run.h"
#include "backend/run_settings.h"
#include "backend/test_data.h"
#include "core/counter_rng.h"

namespace drover::test::stochastic_rounding_test {
namespace {

constexpr std::uint64_t seed = 7;
const std::uint64_t leaf = leaf_hash("some.weight");

/// A part of a leaf: its elements at their positions in the whole leaf of `columns` columns.
struct Block {
    std::int64_t row_begin, rows, column_begin, columns;
};

OwnedTensor cut(const Tensor& whole, const Block& block) {
    OwnedTensor part(whole.dtype(), {block.rows, block.columns});
    const std::size_t size = size_of(whole.dtype());
    for (std::int64_t row = 0; row < block.rows; ++row)
        std::memcpy(
            static_cast<std::byte*>(part.tensor().raw()) +
                static_cast<std::size_t>(row * block.columns) * size,
            static_cast<const std::byte*>(whole.raw()) +
                static_cast<std::size_t>((block.row_begin + row) * whole.size(1) + block.column_begin) * size,
            static_cast<std::size_t>(block.columns) * size);
    return part;
}

/// An optimizer's update of one block, whose state is filled with a constant. Returns the parameter.
using Update = std::function<OwnedTensor(Workbench&, const Tensor& param, const Tensor& gradient,
                                         const LeafPlace&, int step)>;

constexpr UpdateRounding rounding{.stochastic = true, .seed = seed};

Tensor filled(Workbench& bench, DType dtype, const Shape& shape, double value) {
    const Tensor tensor = bench.make(dtype, shape);
    bench.run(Fill{.x = tensor, .value = value});
    return tensor;
}

template <class Operation>
Update moment_update() {
    return
        [](Workbench& bench, const Tensor& param, const Tensor& gradient, const LeafPlace& place, int step) {
            const MomentLeaf leaves[] = {{.param = bench.put(param),
                                          .gradient = bench.put(gradient),
                                          .moment = filled(bench, DType::bf16, param.shape(), 0.25),
                                          .weight_decay = 0.1f,
                                          .place = place}};
            bench.run(Operation{
                .leaves = leaves, .scalars = step_scalars(bench, 1e-3, step), .rounding = rounding});
            return bench.get(leaves[0].param);
        };
}

struct NamedUpdate {
    const char* name;
    Update update;
};

std::vector<NamedUpdate> updates() {
    return {
        {"adamw",
         [](Workbench& bench, const Tensor& param, const Tensor& gradient, const LeafPlace& place, int step) {
             const AdamWLeaf leaves[] = {{.param = bench.put(param),
                                          .gradient = bench.put(gradient),
                                          .exp_avg = filled(bench, DType::bf16, param.shape(), 0),
                                          .exp_avg_sq = filled(bench, DType::bf16, param.shape(), 0.01),
                                          .weight_decay = 0.1f,
                                          .place = place}};
             const std::vector<double> given = bench.values_of(step_scalars(bench, 1e-3, step));
             std::vector<float> scalars(given.begin(), given.end());
             scalars[StepScalar::bias_correction1] = scalars[StepScalar::bias_correction2] = 0.5f;
             bench.run(AdamW{.leaves = leaves,
                             .scalars = bench.put(Tensor::of(scalars.data(), {StepScalar::count})),
                             .rounding = rounding});
             return bench.get(leaves[0].param);
         }},
        {"sgd", moment_update<Sgd>()},
        {"adagrad", moment_update<Adagrad>()},
        {"rmsprop", moment_update<Rmsprop>()},
        {"adafactor",
         [](Workbench& bench, const Tensor& param, const Tensor& gradient, const LeafPlace& place, int step) {
             const AdafactorLeaf leaves[] = {{.param = bench.put(param),
                                              .gradient = bench.put(gradient),
                                              .rows = filled(bench, DType::f32, {param.size(0)}, 1.25),
                                              .columns = filled(bench, DType::f32, {param.size(1)}, 0.75),
                                              .squares = bench.put({1.0}),
                                              .clipped_elements = 1,
                                              .weight_decay = 0.1f,
                                              .place = place}};
             bench.run(AdafactorUpdate{
                 .leaves = leaves, .scalars = step_scalars(bench, 1e-3, step), .rounding = rounding});
             return bench.get(leaves[0].param);
         }},
    };
}

/// An element's noise comes from its position in the whole leaf, so that any way of splitting a leaf gives
/// the same bits.
TEST(StochasticRounding, PartsOfALeafGiveTheBitsOfTheWhole) {
    const std::int64_t rows = 37, columns = 1003;  // several pieces per row, and not a multiple of four
    const OwnedTensor p = random_normal(DType::bf16, {rows, columns}, 1),
                      g = random_normal(DType::bf16, {rows, columns}, 2);
    for (const NamedUpdate& optimizer : updates()) {
        Workbench bench;
        const auto run = [&](const Block& block) {
            const LeafPlace place{.leaf = leaf,
                                  .row_begin = block.row_begin,
                                  .column_begin = block.column_begin,
                                  .columns = columns};
            return optimizer.update(bench, cut(p, block), cut(g, block), place, 3);
        };
        const OwnedTensor whole = run({0, rows, 0, columns});
        for (const Block& block :
             {Block{0, 20, 0, columns}, Block{20, 17, 0, columns}, Block{0, rows, 0, 501},
              Block{0, rows, 501, 502}, Block{5, 3, 17, 1}, Block{36, 1, 999, 4}})
            EXPECT_TRUE(same_bits(run(block), cut(whole, block)))
                << optimizer.name << " row " << block.row_begin << " column " << block.column_begin;
    }
}

TEST(StochasticRounding, ThreadsDoNotShowAndInstructionSetsAgree) {
    const OwnedTensor p = random_normal(DType::bf16, {70, 1003}, 1),
                      g = random_normal(DType::bf16, {70, 1003}, 2);
    const LeafPlace place{.leaf = leaf, .row_begin = 11, .column_begin = 3, .columns = 2000};
    for (const NamedUpdate& optimizer : updates()) {
        const auto run = [&](int count,
                             const BackendSettings& settings = backend_settings_from_environment()) {
            const Threads threads(count);
            Workbench bench(settings);
            return optimizer.update(bench, p, g, place, 3);
        };
        const OwnedTensor one = run(1);
        EXPECT_TRUE(same_bits(one, run(2))) << optimizer.name;
        EXPECT_TRUE(same_bits(one, run(3))) << optimizer.name;
        EXPECT_LE(relative_error(one, run(2, settings_with(CpuInstructions::avx2))), 2e-4) << optimizer.name;
    }
}

/// With these numbers SGD gives the same fp32 result everywhere, so that the rounding can be checked bit by
/// bit.
std::vector<double> sgd_by_hand(const Tensor& p, const Tensor& g, const LeafPlace& place, int step) {
    const CounterRng rng(seed, static_cast<std::uint64_t>(step));
    std::vector<double> result;
    const std::vector<double> params = values(p), gradients = values(g);
    for (std::size_t i = 0; i < params.size(); ++i) {
        const auto row =
            static_cast<std::uint64_t>(place.row_begin) + i / static_cast<std::size_t>(p.size(1));
        const auto column =
            static_cast<std::uint64_t>(place.column_begin) + i % static_cast<std::size_t>(p.size(1));
        const std::uint32_t noise =
            rng.bits(place.leaf, row * static_cast<std::uint64_t>(place.columns) + column) >> 16;
        // 0.5 · g is exact.
        const auto exact = static_cast<float>(params[i] - 0.5 * gradients[i]);
        result.push_back(std::bit_cast<float>((std::bit_cast<std::uint32_t>(exact) + noise) & 0xFFFF0000u));
    }
    return result;
}

TEST(StochasticRounding, UsesTheCountersOfTheGlobalElements) {
    const OwnedTensor p = random_normal(DType::bf16, {5, 700}, 1),
                      g = random_normal(DType::bf16, {5, 700}, 2, 1e-3);
    Workbench bench;
    // The last position is beyond 2^34 elements, where the counter needs its second word.
    for (const LeafPlace& place :
         {LeafPlace{leaf, 0, 0, 700}, LeafPlace{leaf, 3, 1, 701}, LeafPlace{leaf, 1 << 20, 5, 1 << 15}})
        for (const int step : {1, 2, 70000}) {
            const MomentLeaf leaves[] = {{.param = bench.put(p), .gradient = bench.put(g), .place = place}};
            bench.run(Sgd{.leaves = leaves, .scalars = step_scalars(bench, 0.5, step), .rounding = rounding});
            EXPECT_EQ(bench.values_of(leaves[0].param), sgd_by_hand(p, g, place, step))
                << place.row_begin << ' ' << step;
        }
}

TEST(StochasticRounding, NumbersThatBf16CanHoldStay) {
    Workbench bench;
    // No gradient: the result is the parameter, which bf16 can hold.
    const OwnedTensor p = random_normal(DType::bf16, {8, 512}, 1);
    const LeafPlace place{leaf, 0, 0, 512};
    const MomentLeaf still[] = {
        {.param = bench.put(p), .gradient = filled(bench, DType::f32, {8, 512}, 0), .place = place}};
    bench.run(Sgd{.leaves = still, .scalars = step_scalars(bench, 0.5, 1), .rounding = rounding});
    EXPECT_TRUE(same_bits(bench.get(still[0].param), p));

    const float special[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                             std::nanf(""), 0.f};
    const OwnedTensor special_params = OwnedTensor::converted(Tensor::of(special, {1, 4}), DType::bf16);
    const float none[4] = {};
    const OwnedTensor updated =
        updates().back().update(bench, special_params, Tensor::of(none, {1, 4}), {leaf, 0, 0, 4}, 1);
    const std::vector<double> kept = values(updated);
    EXPECT_EQ(kept[0], special[0]);
    EXPECT_EQ(kept[1], special[1]);
    EXPECT_TRUE(std::isnan(kept[2]));
    EXPECT_EQ(kept[3], 0);
}

/// Over many elements the mean is the fp32 value.
TEST(StochasticRounding, MeanOverManyDrawsIsExact) {
    Workbench bench;
    const std::int64_t count = 1 << 18;
    for (const double share : {0.03, 0.25, 0.8}) {
        // Below 1, adjacent bf16 numbers are 2^-8 apart.
        const double target = 1 - share / 256;
        const MomentLeaf leaves[] = {{.param = filled(bench, DType::bf16, {count}, 1),
                                      .gradient = filled(bench, DType::f32, {count}, share / 256),
                                      .place = {leaf, 0, 0, 1}}};
        bench.run(Sgd{.leaves = leaves, .scalars = step_scalars(bench, 1, 1), .rounding = rounding});
        double mean = 0, moved = 0;
        for (const double x : bench.values_of(leaves[0].param)) {
            EXPECT_TRUE(x == 1 || x == 1 - 1.0 / 256);
            mean += x / count;
            moved += x != 1;
        }
        // Four standard deviations.
        const double deviation = std::sqrt(share * (1 - share) / count);
        EXPECT_NEAR(moved / count, share, 4 * deviation);
        EXPECT_NEAR(mean, target, 4 * deviation / 256);
    }
}

/// Each step and each leaf has different noise.
TEST(StochasticRounding, StepsAndLeavesDiffer) {
    const OwnedTensor p = random_normal(DType::bf16, {9, 100}, 1),
                      g = random_normal(DType::bf16, {9, 100}, 2);
    Workbench bench;
    const Update sgd = moment_update<Sgd>();
    const LeafPlace place{leaf, 0, 0, 100}, other{leaf_hash("other.weight"), 0, 0, 100};
    const OwnedTensor first = sgd(bench, p, g, place, 1);
    EXPECT_TRUE(same_bits(first, sgd(bench, p, g, place, 1)));
    EXPECT_FALSE(same_bits(first, sgd(bench, p, g, place, 2)));
    EXPECT_FALSE(same_bits(first, sgd(bench, p, g, other, 1)));
}

TEST(StochasticRoundingDeathTest, OnlyBf16WithoutMasterCopyInsideItsLeaf) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Workbench bench;
    const Tensor scalars = step_scalars(bench, 0.1, 1), f32 = bench.make(DType::f32, {2, 3});
    const Tensor param = bench.make(DType::bf16, {2, 3});
    const auto run = [&](const MomentLeaf& given) {
        bench.run(Sgd{.leaves = std::span(&given, 1), .scalars = scalars, .rounding = rounding});
    };
    EXPECT_DEATH(run({.param = f32, .gradient = f32, .place = {leaf, 0, 0, 3}}), "sgd: stochastic rounding");
    EXPECT_DEATH(run({.param = param, .gradient = f32, .master = f32, .place = {leaf, 0, 0, 3}}),
                 "sgd: stochastic rounding");
    EXPECT_DEATH(run({.param = param, .gradient = f32, .place = {leaf, 0, 1, 3}}), "does not fit its place");
}

}  // namespace
}  // namespace drover::test::stochastic_rounding_test
