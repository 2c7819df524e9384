#include "train/profile/rank_clock.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <utility>

#include "comm/threads/thread_world.h"
#include "parallel/mesh.h"

namespace drover {
namespace {

/// Time is how often the clocks were read, so messages take a known time; each rank's clock has an offset.
/// `late` is what the first answer of a rank takes longer.
std::array<ClockOffset, 3> compared(double late) {
    constexpr std::array<double, 3> offsets = {100, 5, -7000};
    std::atomic<double> ticks = 0;
    std::array<ClockOffset, 3> found;
    run_as_threads(3, {}, [&](World& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        const auto everyone = world.make_communicator("everyone", {0, 1, 2});
        bool is_first = rank > 0;
        found[rank] = compare_with_first(*everyone, [&] {
            return (ticks += std::exchange(is_first, false) ? 1 + late : 1) + offsets[rank];
        });
    });
    return found;
}

TEST(RankClock, IsAheadByWhatTheMiddleOfAMessagesWaySays) {
    const auto found = compared(0);
    EXPECT_EQ(found[0].ahead, 0);
    EXPECT_EQ(found[0].error, 0);
    for (const auto& [rank, ahead] : {std::pair(1u, -95.0), std::pair(2u, -7100.0)}) {
        EXPECT_EQ(found[rank].ahead, ahead) << rank;
        EXPECT_EQ(found[rank].error, 1) << rank;
    }
}

TEST(RankClock, TakesTheMessageThatWasFastest) {
    const auto found = compared(50);
    EXPECT_EQ(found[1].ahead, -95);
    EXPECT_EQ(found[2].ahead, -7100);
    EXPECT_EQ(found[1].error, 1);
}

}  // namespace
}  // namespace drover
