#include "backend/operation_observer.h"

#include <gtest/gtest.h>

#include "backend/every_operation.h"
#include "backend/operation_profile.h"
#include "backend/run_settings.h"

namespace drover::operation_observer_test {
namespace {

using test::Workbench;

struct EventList final : OperationObserver {
    void begin(const OperationCost& cost, Stream) override {
        events.push_back("begin " + std::string(cost.name));
    }
    void end(const OperationCost& cost, Stream) override {
        events.push_back("end " + std::string(cost.name));
    }

    std::vector<std::string> events;
};

TEST(OperationObserver, SeesEachOperationOnceAndInOrder) {
    Workbench bench;
    const Tensor x = bench.make(DType::f32, {4, 4}), y = bench.make(DType::f32, {4, 4});
    EventList observer;
    bench.run(Fill{.x = x, .value = 1});  // before there is an observer
    bench.backend().observe(&observer);
    bench.run(Fill{.x = y, .value = 2});
    bench.run(Gemm::forward(x, y, bench.make(DType::f32, {4, 4})));
    bench.run(Add{.into = x, .x = y});
    bench.backend().observe(nullptr);
    bench.run(Fill{.x = x, .value = 1});
    const std::vector<std::string> expected = {"begin fill",       "end fill",  "begin gemm forward",
                                               "end gemm forward", "begin add", "end add"};
    EXPECT_EQ(observer.events, expected);
}

TEST(OperationObserver, EveryOperationCostsSomethingAndGivesTheSameBits) {
    for (const test::OperationCase& operation : test::every_operation({DType::f32, DType::bf16})) {
        Workbench plain, observed;
        const OperationProfile profile(observed.backend());
        const auto expected = operation.run(plain), results = operation.run(observed);
        ASSERT_EQ(results.size(), expected.size());
        for (std::size_t i = 0; i < results.size(); ++i)
            EXPECT_TRUE(test::same_bits(results[i], expected[i])) << operation.name;
        EXPECT_FALSE(profile.totals().empty()) << operation.name;
        for (const OperationTotal& total : profile.totals()) {
            EXPECT_GT(total.cost.bytes, 0) << total.cost.name;
            EXPECT_GT(total.calls, 0) << total.cost.name;
        }
    }
}

TEST(OperationProfile, SumsUpByName) {
    Workbench bench;
    const Tensor x = bench.put({1.0f, 2.0f, 3.0f}), total = bench.make(DType::f64, {1});
    const OperationProfile profile(bench.backend());
    for (int i = 0; i < 3; ++i) bench.run(Sum{.x = x, .out = total});
    bench.run(Fill{.x = x, .value = 0});
    const std::vector<OperationTotal> totals = profile.totals();
    ASSERT_EQ(totals.size(), 2u);
    EXPECT_GE(totals[0].seconds, totals[1].seconds);
    const OperationTotal& sum = totals[totals[0].cost.name == "sum" ? 0 : 1];
    EXPECT_EQ(sum.calls, 3);
    EXPECT_EQ(sum.cost.bytes, 3 * (3 * 4 + 8));
}

}  // namespace
}  // namespace drover::operation_observer_test
