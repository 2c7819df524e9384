#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <numeric>
#include <thread>

#include "comm/collective_checks.h"
#include "comm/rank_outcomes.h"
#include "comm/threads/thread_world.h"
#include "support/errors.h"

namespace drover {
namespace {

using namespace std::chrono_literals;
using test::expect_contains;
using test::of;
using Outcome = test::RankOutcome;

std::vector<Outcome> outcomes(int size, const WorldOptions& options,
                              const std::function<void(World&)>& work) {
    std::vector<Outcome> result(static_cast<std::size_t>(size));
    const auto noting = [&](World& world) {
        Outcome& mine = result[static_cast<std::size_t>(world.rank())];
        test::note_outcome(mine, [&] { work(world); });
    };
    EXPECT_ANY_THROW(run_as_threads(size, options, noting));
    return result;
}

TEST(Deadline, NamesTheCollectiveTheAxisAndTheMissingRanks) {
    std::latch others_gave_up(2);
    const auto result = outcomes(4, {.deadline = 1s}, [&](World& world) {
        const auto axis = world.make_communicator("data", test::all_ranks(world));
        std::vector<float> part(6), whole(24);
        axis->barrier({});
        if (world.rank() >= 2) {
            others_gave_up.wait();
            return axis->all_gather({}, of(part), of(whole));
        }
        try {
            axis->all_gather({}, of(part), of(whole));
        } catch (...) {
            others_gave_up.count_down();
            throw;
        }
    });
    // Whichever of ranks 0 and 1 reaches its deadline first tells the others.
    const int first = result[0].failed_peer < 0 ? 0 : 1;
    const std::string& message = result[static_cast<std::size_t>(first)].message;
    expect_contains(message, "Rank " + std::to_string(first) + " waited ");
    expect_contains(message,
                    " s in all_gather number 2 on axis data (24 float32); received nothing from ranks 2, 3.");
    for (const int late : {2, 3})
        expect_contains(result[static_cast<std::size_t>(late)].message, "received nothing from ranks 2, 3");
}

TEST(Deadline, OfMessagesNamesTheirRank) {
    for (const bool sends : {true, false}) {
        std::latch gave_up(1);
        const auto result = outcomes(3, {.deadline = 100ms}, [&](World& world) {
            const auto axis = world.make_communicator("pp", {2, 1, 0});
            std::vector<float> x(5);
            if (world.rank() != 0) return gave_up.wait();
            try {
                if (sends)
                    axis->send({}, of(x), 1);
                else
                    axis->receive({}, of(x), 0);
            } catch (...) {
                gave_up.count_down();
                throw;
            }
        });
        expect_contains(
            result[0].message,
            sends
                ? " s in send number 1 to rank 1 on axis pp (5 float32); rank 1 received nothing."
                : " s in receive number 1 from rank 2 on axis pp (5 float32); received nothing from rank 2.");
    }
}

TEST(Failure, ReachesRanksThatWaitWithItsReason) {
    const auto result = outcomes(4, {}, [](World& world) {
        const auto axis = world.make_communicator("tp", test::all_ranks(world));
        std::vector<float> x(100000);
        axis->all_reduce({}, of(x), Reduction::sum);
        if (world.rank() == 1) throw std::runtime_error("the disk is full");
        axis->all_reduce({}, of(x), Reduction::sum);
    });
    EXPECT_EQ(result[1].message, "the disk is full");
    for (const std::size_t rank : {0, 2, 3}) {
        EXPECT_EQ(result[rank].failed_peer, 1);
        // In either all_reduce, or between the two.
        EXPECT_TRUE(result[rank].message.starts_with("Rank 1 failed")) << result[rank].message;
        EXPECT_TRUE(result[rank].message.ends_with(": the disk is full")) << result[rank].message;
    }
}

TEST(Failure, ReachesRanksThatComeLater) {
    std::latch failed(1);
    const auto result = outcomes(2, {}, [&](World& world) {
        const auto axis = world.make_communicator("tp", {0, 1});
        if (world.rank() == 0) {
            world.fail("no more");
            failed.count_down();
            axis->barrier({});
        }
        failed.wait();
        for (int again = 0; again < 2; ++again)
            test::expect_error<PeerFailure>([&] { axis->barrier({}); }, {"no more"});
        axis->barrier({});
    });
    EXPECT_EQ(result[0].message, "This rank failed before: no more");
    expect_contains(result[1].message, "no more");
}

TEST(Failure, OfTheFirstRankIsWhatRunAsThreadsThrows) {
    try {
        run_as_threads(3, {}, [](World& world) {
            const auto axis = world.make_communicator("tp", test::all_ranks(world));
            if (world.rank() == 2) throw Error("A file is missing.", "Make it.");
            axis->barrier({});
        });
        FAIL();
    } catch (const PeerFailure&) {
        FAIL() << "a consequence instead of the cause";
    } catch (const Error& error) {
        EXPECT_EQ(error.cause(), "A file is missing.");
    }
}

TEST(Failure, WithCollectivesUnderWayLetsGoOfTheirMemory) {
    for (int repetition = 0; repetition < 20; ++repetition) {
        const auto result = outcomes(3, {.scratch_bytes = 1}, [&](World& world) {
            const auto axis = world.make_communicator("data", test::all_ranks(world));
            if (world.rank() == 0) {
                // Freed during unwinding, while the others may be copying from them.
                auto part = std::make_unique<std::vector<float>>(100000, 1.f);
                auto whole = std::make_unique<std::vector<float>>(300000);
                const Pending gathered = axis->start_all_gather({}, of(*part), of(*whole));
                const Pending sent = axis->start_send({}, of(*part), 1);
                const Pending never = axis->start_receive({}, of(*part), 2);
                if (repetition % 2 == 1) std::this_thread::sleep_for(1ms);
                throw std::runtime_error("out of luck");
            }
            std::vector<float> part(100000, 1.f), whole(300000);
            axis->all_gather({}, of(part), of(whole));
            axis->barrier({});
        });
        EXPECT_EQ(result[0].message, "out of luck");
        for (const std::size_t rank : {1, 2}) {
            EXPECT_EQ(result[rank].failed_peer, 0);
            expect_contains(result[rank].message, "unfinished because of its own error");
        }
    }
}

TEST(Failure, IsToldByAWorldThatIsDestroyedByAnException) {
    ThreadWorld shared(2);
    std::thread dying([&] {
        try {
            const auto world = shared.join(0);
            throw std::runtime_error("unseen");
        } catch (const std::runtime_error&) {
        }
    });
    const auto world = shared.join(1);
    const auto axis = world->make_communicator("data", {0, 1});
    test::expect_error<PeerFailure>([&] { axis->barrier({}); }, {"Rank 0 failed"});
    dying.join();
}

TEST(Failure, OfMakingTheTransportIsThrownByTheWorld) {
    test::expect_error(
        [&] { World([]() -> std::unique_ptr<Transport> { throw Error("No carrier.", "Plug it in."); }, {}); },
        {"No carrier."});
}

/// The message that two or more ranks get when they disagree, here on operation 2 of axis tp.
std::string disagreement(const std::function<void(Communicator&)>& call, bool comm_debug = true) {
    const auto result = outcomes(2, {.deadline = 20s, .comm_debug = comm_debug}, [&](World& world) {
        const auto axis = world.make_communicator("tp", {0, 1});
        axis->barrier({});
        call(*axis);
        axis->barrier({});
    });
    // Both may detect it themselves, or the slower one is told.
    return result[0].failed_peer < 0 ? result[0].message : result[1].message;
}

TEST(DebugMode, NamesBothCallsWhenTheCollectivesDiffer) {
    std::vector<float> a(24), b(12), c(12);
    expect_contains(
        disagreement([&](Communicator& axis) {
            if (axis.rank() == 0)
                axis.all_gather({}, of(b), of(a));
            else
                axis.all_reduce({}, of(c), Reduction::sum);
        }),
        "Rank 0 calls all_gather of 24 float32, rank 1 calls all_reduce of 12 float32 (sum) (collective 2 on "
        "axis tp).");
    expect_contains(
        disagreement([&](Communicator& axis) {
            if (axis.rank() == 0) axis.all_reduce({}, of(c), Reduction::max);
        }),
        "Rank 0 calls all_reduce of 12 float32 (max), rank 1 calls barrier (collective 2 on axis tp).");
}

TEST(DebugMode, NamesBothCallsWhenTheirOperandsDiffer) {
    std::vector<float> x[2] = {std::vector<float>(12), std::vector<float>(12)};
    const auto own = [&](Communicator& axis) { return of(x[axis.rank()]); };
    expect_contains(
        disagreement([&](Communicator& axis) {
            axis.all_reduce({}, own(axis).rows(0, 10 + axis.rank()), Reduction::sum);
        }),
        "Rank 0 calls all_reduce of 10 float32 (sum), rank 1 calls all_reduce of 11 float32 (sum)");
    expect_contains(
        disagreement([&](Communicator& axis) {
            axis.all_reduce({}, own(axis), axis.rank() == 0 ? Reduction::sum : Reduction::max);
        }),
        "Rank 0 calls all_reduce of 12 float32 (sum), rank 1 calls all_reduce of 12 float32 (max)");
    expect_contains(
        disagreement([&](Communicator& axis) {
            const DType dtype = axis.rank() == 0 ? DType::f32 : DType::i32;
            axis.broadcast({}, Tensor(own(axis).raw(), dtype, {12}), 0);
        }),
        "Rank 0 calls broadcast of 12 float32 from rank 0 of the axis, rank 1 calls broadcast of 12 int32");
    expect_contains(disagreement([&](Communicator& axis) { axis.broadcast({}, own(axis), axis.rank()); }),
                    "rank 1 calls broadcast of 12 float32 from rank 1 of the axis");
}

TEST(DebugMode, NamesThePairWhoseRowsDoNotAgree) {
    std::vector<float> from[2] = {std::vector<float>(12), std::vector<float>(12)};
    std::vector<float> to[2] = {std::vector<float>(12), std::vector<float>(12)};
    expect_contains(disagreement([&](Communicator& axis) {
                        const std::vector<std::int64_t> rows_to = {1, 1};
                        const std::vector<std::int64_t> rows_from = {1, axis.rank() == 0 ? 2 : 1};
                        axis.all_to_all({}, of(from[axis.rank()]).view({4, 3}), rows_to,
                                        of(to[axis.rank()]).view({4, 3}), rows_from);
                    }),
                    "In all_to_all of float32, rank 0 sends 3 elements to rank 1, which expects 3, and "
                    "expects 6 back, but "
                    "gets 3 (collective 2 on axis tp).");
}

TEST(DebugMode, NamesBothEndsOfAMessageThatDiffer) {
    std::vector<float> x(24), y(12);
    expect_contains(
        disagreement([&](Communicator& axis) {
            if (axis.rank() == 0)
                axis.send({}, of(x), 1);
            else
                axis.receive({}, of(y), 0);
        }),
        "Rank 0 calls send of 24 float32, rank 1 calls receive of 12 float32 (message 1 on axis tp).");
}

TEST(DebugMode, NoticesAxesMadeInAnotherOrder) {
    const auto result = outcomes(2, {.deadline = 20s, .comm_debug = true}, [](World& world) {
        const auto axis = world.make_communicator(world.rank() == 0 ? "tp" : "data", {0, 1});
        axis->barrier({});
    });
    expect_contains(result[0].message + result[1].message, "made another axis in its place");
}

TEST(WithoutDebugMode, SizesThatDifferAreAnError) {
    for (const bool longer : {true, false}) {
        std::vector<float> x(24), y(12);
        const std::string message = disagreement(
            [&](Communicator& axis) {
                if ((axis.rank() == 0) == longer)
                    axis.broadcast({}, of(x), 0);
                else
                    axis.broadcast({}, of(y), 0);
                axis.barrier({});
            },
            false);
        expect_contains(message,
                        longer ? "On axis tp, rank 1 expected 48 bytes from rank 0 and got more than 48."
                               : "On axis tp, rank 1 expected 96 bytes from rank 0 and got 48.");
    }
}

}  // namespace
}  // namespace drover
