// The code around NCCL, with threads in place of GPUs; nccl_checks, the counterpart of mpi_checks, uses real
// ones.

#include <gtest/gtest.h>

#include <latch>
#include <mutex>

#include "comm/collective_checks.h"
#include "comm/fake_links.h"
#include "comm/nccl/nccl_communicators.h"
#include "comm/rank_outcomes.h"
#include "comm/threads/thread_world.h"
#include "comm/times_check.h"
#include "support/errors.h"

namespace drover {
namespace {

using namespace std::chrono_literals;
using test::expect_contains;
using test::of;
using Outcome = test::RankOutcome;

constexpr WorldOptions ordinary = {.deadline = 20s};

/// One rank: its world, its links and the factory of its communicators.
struct Rank {
    World& world;
    test::FakeLinks& links;
    NcclCommunicators& communicators;

    test::Carrier carrier() const { return {world, communicators.maker(), nullptr, true}; }
    std::unique_ptr<Communicator> everyone(std::string axis = "data") const {
        return communicators.make(std::move(axis), test::all_ranks(world));
    }
};

void on_ranks(int size, const WorldOptions& options, const std::function<void(Rank)>& work) {
    const auto network = test::make_fake_network();
    run_as_threads(size, options, [&](World& world) {
        auto links = std::make_unique<test::FakeLinks>(network);
        test::FakeLinks& links_here = *links;
        NcclCommunicators communicators(world, std::move(links));
        work({world, links_here, communicators});
    });
}

std::vector<Outcome> outcomes(int size, const WorldOptions& options, const std::function<void(Rank)>& work) {
    std::vector<Outcome> result(static_cast<std::size_t>(size));
    const auto noting = [&](const Rank& rank) {
        Outcome& mine = result[static_cast<std::size_t>(rank.world.rank())];
        test::note_outcome(mine, [&] { work(rank); });
    };
    EXPECT_ANY_THROW(on_ranks(size, options, noting));
    return result;
}

void check_all(const Rank& rank) {
    const test::Carrier at = rank.carrier();
    test::check_collectives(at);
    test::check_overlap(at);
    test::check_groups(at);
    test::check_messages(at);
    if (rank.world.size() % 2 == 0) test::check_mesh(at, 2);
}

class NcclRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Nccl, NcclRanks, testing::Values(1, 2, 3, 4));

TEST_P(NcclRanks, CollectivesGiveWhatALoopOverTheRanksGives) {
    on_ranks(GetParam(), ordinary, check_all);
}

TEST(Nccl, CollectivesPassTheDebugModesChecks) {
    WorldOptions options = ordinary;
    options.comm_debug = true;
    on_ranks(3, options, check_all);
}

TEST(Nccl, AxesWithTheSameRanksShareALink) {
    on_ranks(4, ordinary, [](const Rank& rank) {
        const auto everyone = rank.everyone();
        const auto again = rank.everyone("everyone");
        const auto alone = rank.communicators.make("alone", {rank.world.rank()});
        const int first = rank.world.rank() / 2 * 2;
        const auto pair = rank.communicators.make("pair", {first, first + 1});
        EXPECT_EQ(rank.links.links_made(), 2);
        std::vector<float> x(3, 1.f);
        everyone->all_reduce({}, of(x), Reduction::sum);
        again->all_reduce({}, of(x), Reduction::sum);
        pair->all_reduce({}, of(x), Reduction::sum);
        alone->all_reduce({}, of(x), Reduction::sum);
        EXPECT_EQ(x, std::vector<float>(3, 32.f));
    });
}

TEST(Nccl, AGroupIsHandedOverOnce) {
    on_ranks(2, ordinary, [](const Rank& rank) {
        const auto axis = rank.everyone();
        std::vector<float> x(8, 1.f), y(8, 2.f);
        std::vector<Pending> pending;
        axis->together({}, [&] {
            pending.push_back(axis->start_all_reduce({}, of(x), Reduction::sum));
            pending.push_back(axis->start_all_reduce({}, of(y), Reduction::sum));
            EXPECT_EQ(rank.links.enqueued(), 0);
        });
        EXPECT_EQ(rank.links.enqueued(), 1);
        for (Pending& sum : pending) sum.wait({});
        EXPECT_EQ(x, std::vector<float>(8, 2.f));
        EXPECT_EQ(y, std::vector<float>(8, 4.f));
    });
}

TEST(Nccl, AGroupThatFailsIsNotHandedOver) {
    on_ranks(2, ordinary, [](const Rank& rank) {
        const auto axis = rank.everyone();
        std::vector<float> x(8, 1.f);
        {
            std::vector<Pending> pending;
            test::expect_error<std::runtime_error>(
                [&] {
                    axis->together({}, [&] {
                        pending.push_back(axis->start_all_reduce({}, of(x), Reduction::max));
                        throw std::runtime_error("cut short");
                    });
                },
                {"cut short"});
        }
        EXPECT_EQ(rank.links.enqueued(), 0);
        axis->all_reduce({}, of(x), Reduction::sum);
        EXPECT_EQ(x, std::vector<float>(8, 2.f));
    });
}

TEST(Nccl, TimesCountCollectivesAndWaits) {
    WorldOptions options = ordinary;
    options.gpu_times = true;
    on_ranks(2, options, [](const Rank& rank) {
        for (int i = 0; i < 10; ++i) test::check_times(rank.carrier(), rank.communicators);
        // At most two for each of its three operations and of their waits: they are reused.
        EXPECT_LE(rank.links.timed_events_made(), 12);
    });
}

/// Keeps what it is told.
class Listener final : public CollectiveObserver {
  public:
    struct Heard {
        std::string text;
        std::chrono::steady_clock::time_point begin, end;
    };

    void done(const ObservedCollective& told) override {
        const std::lock_guard lock(mutex_);
        heard_.push_back({fmt::format("{} {} x{} {} bytes{}", name_of(told.kind), told.axis, told.calls,
                                      told.sent_bytes, told.on_device ? " on the GPU" : ""),
                          told.begin, told.end});
    }
    std::vector<Heard> heard() {
        const std::lock_guard lock(mutex_);
        return heard_;
    }

  private:
    std::mutex mutex_;
    std::vector<Heard> heard_;
};

TEST(Nccl, AnObserverIsToldOfGroupsAndMessages) {
    WorldOptions options = ordinary;
    options.gpu_times = true;
    on_ranks(2, options, [](const Rank& rank) {
        const auto axis = rank.everyone();
        std::vector<float> x(8, 1.f), y(4, 2.f);
        const auto use_all = [&] {
            std::vector<Pending> pending;
            axis->together({}, [&] {
                pending.push_back(axis->start_all_reduce({}, of(x), Reduction::sum));
                pending.push_back(axis->start_all_reduce({}, of(y), Reduction::sum));
            });
            for (Pending& sum : pending) sum.wait({});
            if (rank.world.rank() == 0)
                axis->send({}, of(x), 1);
            else
                axis->receive({}, of(x), 0);
        };
        use_all();
        Listener listener;
        const auto before = std::chrono::steady_clock::now();
        rank.communicators.observe(&listener, {});
        use_all();
        rank.communicators.observe(nullptr, {});
        const auto after = std::chrono::steady_clock::now();
        use_all();

        const std::vector<Listener::Heard> heard = listener.heard();
        ASSERT_EQ(heard.size(), 2u);
        EXPECT_EQ(heard[0].text, "all_reduce data x2 48 bytes on the GPU");
        EXPECT_EQ(heard[1].text, rank.world.rank() == 0 ? "send data x1 32 bytes on the GPU"
                                                        : "receive data x1 0 bytes on the GPU");
        for (const Listener::Heard& each : heard) {
            EXPECT_LE(before, each.begin);
            EXPECT_LE(each.begin, each.end);
            EXPECT_LE(each.end, after);
        }
    });
}

/// When an exception ends a rank, others may never send what it waits for.
TEST(Nccl, AnObserverLeavesWithoutWaiting) {
    WorldOptions options = ordinary;
    options.gpu_times = true;
    std::latch has_left(1);
    on_ranks(2, options, [&](const Rank& rank) {
        const auto axis = rank.everyone();
        axis->barrier({});
        std::vector<float> x(8, static_cast<float>(1 + rank.world.rank()));
        if (rank.world.rank() == 1) {
            has_left.wait();
            axis->send({}, of(x), 0);
            static_cast<void>(rank.communicators.times());
            return;
        }
        {
            Listener listener;
            rank.communicators.observe(&listener, {});
            Pending pending = axis->start_receive({}, of(x), 1);
            rank.communicators.observe(nullptr, {}, UnderWay::left);
            EXPECT_TRUE(listener.heard().empty());
            has_left.count_down();
            pending.wait({});
        }
        // What ends later is not told to the listener, which is gone.
        static_cast<void>(rank.communicators.times());
        EXPECT_EQ(x, std::vector<float>(8, 2.f));
    });
}

TEST(Nccl, NothingIsTimedUnlessAskedFor) {
    on_ranks(2, ordinary, [](const Rank& rank) {
        rank.everyone()->barrier({});
        EXPECT_EQ(rank.communicators.times().collectives, 0);
        EXPECT_EQ(rank.links.timed_events_made(), 0);
    });
}

/// A single rank takes the same path as several if requested.
TEST(Nccl, ALonelyAxisCopiesWhenAskedTo) {
    on_ranks(1, ordinary, [](const Rank& rank) {
        const auto make = [&](std::string axis, std::vector<int> ranks) {
            return rank.communicators.make(std::move(axis), std::move(ranks), SingleRankAxis::copies);
        };
        EXPECT_FALSE(make("data", {0})->idle());
        EXPECT_TRUE(rank.everyone()->idle());
        const test::Carrier at(rank.world, make, nullptr, true);
        test::check_collectives(at);
        test::check_groups(at);
        EXPECT_GT(rank.links.enqueued(), 0);
    });
}

TEST(Nccl, AWaitThatLastsTooLongNamesTheMissingRanks) {
    std::latch others_gave_up(2);
    const auto result = outcomes(4, {.deadline = 500ms}, [&](const Rank& rank) {
        const auto axis = rank.everyone();
        std::vector<float> part(6), whole(24);
        axis->barrier({});
        if (rank.world.rank() >= 2) {
            others_gave_up.wait();
            return axis->all_gather({}, of(part), of(whole));
        }
        try {
            axis->all_gather({}, of(part), of(whole));  // returns when it is aborted
            axis->check_unbroken();
        } catch (...) {
            others_gave_up.count_down();
            throw;
        }
    });
    const int first = result[0].failed_peer < 0 ? 0 : 1;
    const std::string& message = result[static_cast<std::size_t>(first)].message;
    expect_contains(message, "Rank " + std::to_string(first) + " waited ");
    expect_contains(message,
                    " s in all_gather number 2 on axis data (24 float32); received nothing from ranks 2, 3.");
    for (const std::size_t late : {2, 3})
        expect_contains(result[late].message, "received nothing from ranks 2, 3");
}

TEST(Nccl, AMessageThatNobodyTakesNamesItsRank) {
    std::latch gave_up(1);
    const auto result = outcomes(2, {.deadline = 300ms}, [&](const Rank& rank) {
        const auto axis = rank.everyone("pp");
        std::vector<float> x(100000);
        if (rank.world.rank() == 0) {
            axis->send({}, of(x), 1);
            try {
                axis->send({}, of(x), 1);
                axis->check_unbroken();
            } catch (...) {
                gave_up.count_down();
                throw;
            }
        }
        axis->receive({}, of(x), 0);
        gave_up.wait();
    });
    // The hosts agree first that both ends are ready.
    expect_contains(result[0].message,
                    " to rank 1 on axis pp (connection) (1 uint8); rank 1 received nothing.");
}

TEST(Nccl, AFailureReachesRanksThatWaitWithItsReason) {
    const auto result = outcomes(3, {}, [](const Rank& rank) {
        const auto axis = rank.everyone("tp");
        std::vector<float> x(1000);
        axis->all_reduce({}, of(x), Reduction::sum);
        if (rank.world.rank() == 1) throw std::runtime_error("the disk is full");
        for (;;) axis->all_reduce({}, of(x), Reduction::sum);
    });
    EXPECT_EQ(result[1].message, "the disk is full");
    for (const std::size_t rank : {0, 2}) {
        EXPECT_EQ(result[rank].failed_peer, 1);
        expect_contains(result[rank].message, "the disk is full");
    }
}

TEST(Nccl, AnExceptionWithCollectivesUnderWayLetsGoOfTheirMemory) {
    const auto result = outcomes(3, {}, [&](const Rank& rank) {
        const auto axis = rank.everyone();
        if (rank.world.rank() == 0) {
            // Freed during unwinding, while the others may be copying from them.
            auto part = std::make_unique<std::vector<float>>(100000, 1.f);
            auto whole = std::make_unique<std::vector<float>>(300000);
            const Pending gathered = axis->start_all_gather({}, of(*part), of(*whole));
            const Pending sent = axis->start_send({}, of(*part), 1);
            const Pending never = axis->start_receive({}, of(*part), 2);
            throw std::runtime_error("out of luck");
        }
        std::vector<float> part(100000, 1.f), whole(300000);
        axis->all_gather({}, of(part), of(whole));
        axis->barrier({});
        axis->check_unbroken();
    });
    EXPECT_EQ(result[0].message, "out of luck");
    for (const std::size_t rank : {1, 2}) EXPECT_EQ(result[rank].failed_peer, 0);
}

TEST(Nccl, AnErrorOfALinkEndsAllRanks) {
    const auto result = outcomes(2, {}, [](const Rank& rank) {
        const auto axis = rank.everyone();
        std::vector<float> x(10);
        axis->all_reduce({}, of(x), Reduction::sum);
        if (rank.world.rank() == 0) rank.links.break_links();
        for (;;) axis->all_reduce({}, of(x), Reduction::sum);
    });
    EXPECT_EQ(result[0].message, "NCCL failed. Mend it.");
    EXPECT_EQ(result[1].failed_peer, 0);
    expect_contains(result[1].message, "NCCL failed. Mend it.");
}

TEST(Nccl, DebugModeNamesBothCallsWhenTheyDiffer) {
    const auto result = outcomes(2, {.deadline = 20s, .comm_debug = true}, [](const Rank& rank) {
        const auto axis = rank.everyone("tp");
        std::vector<float> x(12);
        axis->barrier({});
        if (rank.world.rank() == 0) axis->all_reduce({}, of(x), Reduction::max);
        axis->barrier({});
    });
    expect_contains(
        result[0].failed_peer < 0 ? result[0].message : result[1].message,
        "Rank 0 calls all_reduce of 12 float32 (max), rank 1 calls barrier (collective 2 on axis tp).");
}

}  // namespace
}  // namespace drover
