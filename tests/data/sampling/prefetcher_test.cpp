#include "data/sampling/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

#include "support/errors.h"

namespace drover {
namespace {

TEST(Prefetcher, GivesItemsInOrderAndThenNothing) {
    int made = 0;
    Prefetcher<int> prefetcher(3, [&]() -> std::optional<int> {
        if (made == 100) return std::nullopt;
        return made++;
    });
    for (int i = 0; i < 100; ++i) EXPECT_EQ(prefetcher.next(), i);
    EXPECT_EQ(prefetcher.next(), std::nullopt);
    EXPECT_EQ(prefetcher.next(), std::nullopt);
}

TEST(Prefetcher, StaysWithinItsBound) {
    std::atomic<int> made = 0, taken = 0, furthest = 0;
    Prefetcher<int> prefetcher(4, [&]() -> std::optional<int> {
        const int ahead = ++made - taken;
        if (ahead > furthest) furthest = ahead;
        return made;
    });
    for (int i = 1; i <= 1000; ++i) {
        EXPECT_EQ(prefetcher.next(), i);
        ++taken;
    }
    // Four are waiting, one is being made, and one was taken but not yet counted.
    EXPECT_LE(furthest, 6);
    EXPECT_GE(furthest, 2);
}

TEST(Prefetcher, CarriesAnErrorAfterTheItemsBeforeIt) {
    int made = 0;
    Prefetcher<int> prefetcher(8, [&]() -> std::optional<int> {
        if (made == 3) throw std::runtime_error("no fourth");
        return made++;
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(prefetcher.next(), i);
    test::expect_error<std::runtime_error>([&] { prefetcher.next(); }, {"no fourth"});
    EXPECT_EQ(prefetcher.next(), std::nullopt);
}

TEST(Prefetcher, StopsWithAFullQueueAndWithNothingTaken) {
    for (int round = 0; round < 20; ++round) {
        Prefetcher<std::unique_ptr<int>> prefetcher(
            2, []() -> std::optional<std::unique_ptr<int>> { return std::make_unique<int>(1); });
        for (int i = 0; i < round % 5; ++i) EXPECT_EQ(**prefetcher.next(), 1);
    }
}

}  // namespace
}  // namespace drover
