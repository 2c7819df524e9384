#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "comm/collective_checks.h"
#include "comm/threads/thread_world.h"

namespace drover {
namespace {

/// If a rank's expectations fail, the others must not wait for it for long.
constexpr WorldOptions plain = {.deadline = std::chrono::seconds(20)};
/// As little scratch memory as possible, so that reductions need many pieces.
constexpr WorldOptions small_pieces = {.deadline = plain.deadline, .scratch_bytes = 1};

class EverySize : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, EverySize, testing::Values(1, 2, 3, 4, 5));

TEST_P(EverySize, CollectivesGiveWhatALoopOverTheRanksGives) {
    run_as_threads(GetParam(), small_pieces, test::check_collectives);
}

TEST_P(EverySize, CollectivesOverlap) {
    run_as_threads(GetParam(), small_pieces, test::check_overlap);
}

TEST_P(EverySize, CollectivesAreStartedTogether) {
    run_as_threads(GetParam(), small_pieces, test::check_groups);
}

TEST_P(EverySize, NotesReachTheOtherRanks) {
    run_as_threads(GetParam(), plain, test::check_notes);
}

TEST_P(EverySize, MessagesMayBeTakenAfterLaterCollectives) {
    run_as_threads(GetParam(), small_pieces, test::check_messages);
}

TEST(Threads, CollectivesPassTheDebugModesChecks) {
    WorldOptions options = small_pieces;
    options.comm_debug = true;
    run_as_threads(3, options, test::check_collectives);
    run_as_threads(3, options, test::check_messages);
}

/// A single rank takes the same path as several if requested.
TEST(Threads, ALonelyAxisCopiesWhenAskedTo) {
    run_as_threads(1, small_pieces, [](World& world) {
        const auto make = [&](std::string axis, std::vector<int> ranks) {
            return world.make_communicator(std::move(axis), std::move(ranks), SingleRankAxis::copies);
        };
        EXPECT_FALSE(make("data", {0})->idle());
        EXPECT_TRUE(world.make_communicator("data", {0})->idle());
        test::check_collectives({world, make, nullptr, true});
        EXPECT_GT(world.communication_times().collectives, 0);
    });
}

/// A late rank makes the other one wait, whose collective is in flight meanwhile.
TEST(Threads, TimesCountCollectivesAndWaits) {
    run_as_threads(2, plain, [](World& world) {
        const auto axis = world.make_communicator("data", {0, 1});
        axis->barrier({});
        const CommunicationTimes before = world.communication_times();
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        axis->barrier({});
        axis->barrier({});
        const CommunicationTimes after = world.communication_times();
        EXPECT_EQ(after.collectives - before.collectives, 2);
        EXPECT_GE(after.busy_seconds, before.busy_seconds);
        if (world.rank() == 0) {
            EXPECT_GT(after.waited_seconds - before.waited_seconds, 0);
            EXPECT_GT(after.busy_seconds - before.busy_seconds, 0);
        }
    });
}

TEST(Threads, AxesOfAMeshInterleave) {
    run_as_threads(4, small_pieces, [](World& world) { test::check_mesh(world, 2); });
    run_as_threads(6, small_pieces, [](World& world) { test::check_mesh(world, 3); });
    run_as_threads(3, small_pieces, [](World& world) { test::check_mesh(world, 1); });
}

TEST(Threads, WholePiecesOfTheUsualSizeAndMessagesOfMoreThanOne) {
    run_as_threads(2, plain, [](World& world) {
        const auto axis = world.make_communicator("data", {0, 1});
        constexpr std::int64_t count = (std::int64_t{65} << 20) + 5;  // bytes; one message has at most 64 MiB
        std::vector<std::uint8_t> out(count, static_cast<std::uint8_t>(world.rank() + 1)), in(count);
        out.back() = 77;
        const Tensor from = Tensor::of(out.data(), {count}), to = Tensor::of(in.data(), {count});
        Pending sent = axis->start_send({}, from, 1 - world.rank());
        axis->receive({}, to, 1 - world.rank());
        axis->wait({}, std::move(sent));
        ASSERT_EQ(in.front(), 2 - world.rank());
        ASSERT_EQ(in[count - 2], 2 - world.rank());
        ASSERT_EQ(in.back(), 77);

        axis->broadcast({}, to, 0);
        ASSERT_EQ(in[count - 2], 2);

        constexpr std::int64_t elements = 3'000'001;  // 12 MB: a half is more than a piece of 4 MiB
        std::vector<float> x(elements);
        for (std::int64_t i = 0; i < elements; ++i)
            x[i] = static_cast<float>((i % 1000) * (world.rank() + 1));
        axis->all_reduce({}, Tensor::of(x.data(), {elements}), Reduction::sum);
        for (std::int64_t i = 0; i < elements; ++i) ASSERT_EQ(x[i], static_cast<float>((i % 1000) * 3));
    });
}

TEST(Threads, SumsDoNotDependOnTiming) {
    // 1e8 + 1 − 1e8 is 0 or 1 in fp32, depending on the order.
    for (int late = 0; late < 3; ++late) {
        run_as_threads(3, plain, [&](World& world) {
            const auto axis =
                world.make_communicator("data", {2, 0, 1});  // the order of the axis, not of the world
            std::vector<float> x(5000, axis->rank() == 0 ? 1e8f : axis->rank() == 1 ? -1e8f : 1.f);
            if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
            axis->all_reduce({}, Tensor::of(x.data(), {5000}), Reduction::sum);
            for (const float value : x) ASSERT_EQ(value, 1.f);
        });
    }
}

TEST(Threads, HalfPrecisionSumsAreRoundedOnce) {
    run_as_threads(4, plain, [](World& world) {
        const auto axis = world.make_communicator("data", {0, 1, 2, 3});
        // 256 + 1 + 1 + 1 is 259 → 260 in bf16; rounded after each step it would stay 256.
        std::vector<bf16> x(3, bf16(world.rank() == 0 ? 256.f : 1.f));
        axis->all_reduce({}, Tensor::of(x.data(), {3}), Reduction::sum);
        for (const bf16 value : x) ASSERT_EQ(static_cast<float>(value), 260.f);
    });
}

TEST(Threads, ABarrierIsPassedByNobodyBeforeTheLastComes) {
    std::atomic<int> came = 0;
    run_as_threads(4, plain, [&](World& world) {
        const auto axis = world.make_communicator("data", {0, 1, 2, 3});
        for (int round = 1; round <= 20; ++round) {
            if (world.rank() == round % 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            ++came;
            axis->barrier({});
            ASSERT_GE(came.load(), 4 * round);
            axis->barrier({});
        }
    });
}

TEST(Threads, WorldsLiveSideBySide) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([] { run_as_threads(2, small_pieces, test::check_overlap); });
    for (std::thread& thread : threads) thread.join();
}

TEST(Self, DoesNothing) {
    const auto self = make_self_communicator("tp");
    EXPECT_EQ(self->size(), 1);
    EXPECT_EQ(self->rank(), 0);
    EXPECT_EQ(self->axis(), "tp");
    std::vector<float> x = {1, 2};
    const Tensor tensor = Tensor::of(x.data(), {2});
    const std::vector<std::int64_t> rows = {2};
    self->all_reduce({}, tensor, Reduction::sum);
    self->all_gather({}, tensor, tensor);
    self->reduce_scatter({}, tensor, tensor);
    self->broadcast({}, tensor, 0);
    self->all_to_all({}, tensor, rows, tensor, rows);
    self->barrier({});
    EXPECT_FALSE(self->start_barrier({}));
    EXPECT_EQ(x, (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace drover
