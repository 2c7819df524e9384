#include "run/process_group.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/threads/thread_world.h"
#include "run/device_mesh.h"
#include "run/machine_place.h"
#include "support/errors.h"

namespace drover {
namespace {

/// Runs `work` on every rank, and returns what each threw: the text and exit code, "" for nothing.
std::vector<std::string> thrown_by(int size, const std::function<void(const ProcessGroup&)>& work) {
    std::vector<std::string> thrown(static_cast<std::size_t>(size));
    run_as_threads(size, {}, [&](World& world) {
        const ProcessGroup ranks(world);
        try {
            work(ranks);
        } catch (const FailureOfRank& failure) {
            thrown[static_cast<std::size_t>(world.rank())] = (failure.shown_here() ? "shown: " : "quiet: ") +
                                                             std::string(failure.what()) + " " +
                                                             std::to_string(failure.exit_code());
        }
    });
    return thrown;
}

TEST(ProcessGroup, TextsReachEveryone) {
    run_as_threads(3, {}, [](World& world) {
        const ProcessGroup ranks(world);
        const std::string own(static_cast<std::size_t>(world.rank() * 3000), 'x');
        const std::vector<std::string> all = ranks.gather(own);
        for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(all[rank].size(), rank * 3000);
        EXPECT_EQ(ranks.from_first("from " + std::to_string(world.rank())), "from 0");
        EXPECT_EQ(ranks.from_first(""), "");
        EXPECT_EQ(ranks.largest(world.rank() == 1 ? 15 : 0), 15);
        EXPECT_EQ(ranks.united(1u << (31 - world.rank())), 0xE0000000u);
        std::vector<float> numbers{1, static_cast<float>(world.rank())};
        ranks.sum(numbers);
        EXPECT_EQ(numbers, (std::vector<float>{3, 3}));
        ranks.meet();
    });
}

TEST(ProcessGroup, AloneNeedsNobody) {
    const ProcessGroup alone;
    EXPECT_EQ(alone.gather("x"), std::vector<std::string>{"x"});
    EXPECT_EQ(alone.from_first("x"), "x");
    EXPECT_EQ(alone.largest(3), 3);
    EXPECT_EQ(alone.united(5), 5u);
    test::expect_error<UsageError>(
        [&] { alone.together([] { throw UsageError("As it is.", "Leave it."); }); }, {"As it is."});
}

TEST(ProcessGroup, OneOfThoseThatFailSpeaks) {
    const auto everywhere = thrown_by(3, [](const ProcessGroup& ranks) {
        ranks.together([] { throw UsageError("Wrong.", "Do better."); });
    });
    EXPECT_EQ(everywhere, (std::vector<std::string>{"shown: Wrong. Do better. 2", "quiet: Rank 0 failed. 2",
                                                    "quiet: Rank 0 failed. 2"}));
    const auto alone = thrown_by(3, [](const ProcessGroup& ranks) {
        ranks.together([&] {
            if (ranks.rank() == 2) throw std::bad_alloc();
        });
    });
    EXPECT_EQ(alone[0], "quiet: Rank 2 failed. 1");
    EXPECT_TRUE(alone[2].starts_with("shown: Rank 2: The memory was used up while ")) << alone[2];
}

TEST(ProcessGroup, TurnsAreTaken) {
    std::mutex guard;
    std::vector<int> order;
    const auto thrown = thrown_by(4, [&](const ProcessGroup& ranks) {
        ranks.in_turns(ranks.rank() == 3, [&] {
            const std::lock_guard lock(guard);
            order.push_back(ranks.rank());
        });
    });
    ASSERT_EQ(order.size(), 4u);
    EXPECT_EQ(order[0], 3);
}

TEST(ProcessGroup, DifferencesAreNamed) {
    const auto thrown = thrown_by(3, [](const ProcessGroup& ranks) {
        check_ranks_agree(ranks, {{"the same", "1"}, {"--seed", ranks.rank() == 1 ? "43" : "42"}});
    });
    EXPECT_TRUE(
        thrown[0].starts_with("shown: The processes were not started alike: rank 0 differs from rank 1 in "
                              "--seed (43 there, 42 on rank 0)."))
        << thrown[0];
    EXPECT_TRUE(thrown[1].starts_with("quiet"));
    EXPECT_TRUE(thrown[2].starts_with("quiet"));
    EXPECT_EQ(thrown_by(2, [](const ProcessGroup& ranks) { check_ranks_agree(ranks, {{"x", "1"}}); })[0], "");
}

TEST(DeviceMesh, ARankOnAnotherDeviceIsNamed) {
    const auto thrown = thrown_by(3, [](const ProcessGroup& ranks) {
        check_devices_alike(ranks, ranks.rank() == 2 ? Device::cpu : Device::cuda);
    });
    EXPECT_NE(thrown[0].find("rank 2 in the device (CPU there, GPU on rank 0). With --device cuda, those"),
              std::string::npos)
        << thrown[0];
    EXPECT_TRUE(thrown[0].starts_with("shown")) << thrown[0];
    EXPECT_TRUE(thrown[2].starts_with("quiet")) << thrown[2];
}

TEST(MachinePlace, RanksOfOneMachineFindEachOther) {
    run_as_threads(2, {}, [](World& world) {
        const MachinePlace place = find_machine_place(ProcessGroup(world));
        EXPECT_EQ(place.ranks, 2);
        EXPECT_EQ(place.rank, world.rank());
        EXPECT_EQ(place.machines, 1);
    });
}

TEST(MachinePlace, FollowsFromHostsAndProcessors) {
    const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<RankOnMachine> shared{{"a", all}, {"a", all}, {"b", all}, {"b", all}};
    const MachinePlace place = place_on_machine(shared, 3);
    EXPECT_EQ(place.rank, 1);
    EXPECT_EQ(place.ranks, 2);
    EXPECT_EQ(place.machines, 2);
    EXPECT_TRUE(place.even);
    EXPECT_EQ(place.processors, 4);  // two ranks may use all eight
    const std::vector<RankOnMachine> bound{{"a", {0, 1, 2}}, {"a", {3, 4, 5}}};
    EXPECT_EQ(place_on_machine(bound, 1).processors, 3);
    EXPECT_FALSE(place_on_machine({{"a", all}, {"b", all}, {"a", all}}, 0).even);
    EXPECT_FALSE(place_on_machine({{"a", all}, {"b", all}, {"b", all}}, 0).even);
    EXPECT_FALSE(place_on_machine({{"a", all}, {"b", all}, {"a", all}, {"b", all}}, 0).even);
    EXPECT_EQ(place_on_machine({{"a", {0}}, {"a", {0}}, {"a", {0}}}, 2).processors, 1);
}

/// A machine's processors are counted once, however many ranks measure them.
TEST(MachinePlace, RanksShareWhatTheirThreadsKeepBusy) {
    const std::vector<int> all{0, 1, 2, 3};
    const auto share = [](const std::vector<RankOnMachine>& ranks, int threads) {
        return place_on_machine(ranks, 0).own_share(threads);
    };
    const std::vector<RankOnMachine> two{{"a", all}, {"a", all}};
    EXPECT_EQ(share(two, 2), 1);    // half of the processors each
    EXPECT_EQ(share(two, 1), 1);    // some are idle
    EXPECT_EQ(share(two, 4), 0.5);  // --threads 4: both need all of them
    EXPECT_EQ(share(two, 8), 0.5);
    const std::vector<RankOnMachine> crowd{{"a", {0}}, {"a", {0}}, {"a", {0}}, {"a", {0}}};
    EXPECT_EQ(share(crowd, 1), 0.25);
    EXPECT_EQ(share({{"a", all}, {"b", all}}, 4), 1);
    EXPECT_EQ(share({{"a", {0, 1}}, {"a", {2, 3}}}, 2), 1);
    EXPECT_EQ(MachinePlace().own_share(8), 1);
}

}  // namespace
}  // namespace drover
