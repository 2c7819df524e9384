#include "comm/counting_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "comm/counting_transport.h"
#include "comm/threads/mailbox_transport.h"
#include "comm/world.h"

namespace drover {
namespace {

constexpr int ranks = 3;

/// Every kind of call, with operands sent in one round, in several, and with none. Returns the kind of each.
std::vector<CollectiveKind> call_everything(Communicator& axis) {
    std::vector<CollectiveKind> kinds;
    const int self = axis.rank();
    const auto done = [&](CollectiveKind kind) { kinds.push_back(kind); };
    for (const std::int64_t count : {0, 5, 40'000}) {
        std::vector<double> whole(static_cast<std::size_t>(ranks * count), 1), more = whole;
        const Tensor all = Tensor::of(whole.data(), {ranks * count}),
                     other = Tensor::of(more.data(), {ranks * count});
        axis.all_reduce({}, all, Reduction::sum);
        done(CollectiveKind::all_reduce);
        axis.all_gather({}, all.rows(self * count, count), all);
        done(CollectiveKind::all_gather);
        axis.reduce_scatter({}, all, all.rows(self * count, count));
        done(CollectiveKind::reduce_scatter);
        axis.broadcast({}, all, 1);
        done(CollectiveKind::broadcast);
        // Rank r sends r rows to everyone, including itself, or all that it has.
        const auto rows_of = [&](int rank) { return std::min<std::int64_t>(rank, count); };
        const std::vector<std::int64_t> to(ranks, rows_of(self));
        std::vector<std::int64_t> from;
        for (int rank = 0; rank < ranks; ++rank) from.push_back(rows_of(rank));
        axis.all_to_all({}, all, to, other, from);
        done(CollectiveKind::all_to_all);
        if (self == 0) axis.send({}, all, 1);
        if (self == 1) axis.receive({}, all, 0);
        if (self < 2) done(self == 0 ? CollectiveKind::send : CollectiveKind::receive);
    }
    axis.barrier({});
    done(CollectiveKind::barrier);
    return kinds;
}

TEST(CountingCommunicator, CountsWhatThreadsSend) {
    const auto mailboxes = std::make_shared<Mailboxes>(ranks);
    std::vector<std::map<Channel, std::size_t>> sent(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            World world(
                [&, rank] {
                    return std::make_unique<test::CountingTransport>(make_mailbox_transport(mailboxes, rank),
                                                                     sent[static_cast<std::size_t>(rank)]);
                },
                {});
            run_rank(world, [&](World& each) {
                call_everything(*each.make_communicator("axis", {0, 1, 2}));
            });
        });
    for (std::thread& thread : threads) thread.join();

    for (int rank = 0; rank < ranks; ++rank) {
        SentCounts counts;
        const auto axis = make_counting_communicator("axis", ranks, rank, Device::cpu, counts);
        const std::vector<CollectiveKind> kinds = call_everything(*axis);
        std::size_t collectives = 0, messages = 0;
        for (const auto& [key, count] : counts) {
            const bool is_message =
                key.second == CollectiveKind::send || key.second == CollectiveKind::receive;
            (is_message ? messages : collectives) += count.bytes;
            EXPECT_EQ(key.first, "axis");
            EXPECT_EQ(count.calls, std::count(kinds.begin(), kinds.end(), key.second)) << name_of(key.second);
        }
        auto& really = sent[static_cast<std::size_t>(rank)];
        EXPECT_EQ(collectives, really[0]) << "rank " << rank;
        EXPECT_EQ(messages, really[1]) << "rank " << rank;
    }
}

TEST(CountingCommunicator, TouchesNoOperandAndIdlesAlone) {
    SentCounts counts;
    const auto axis = make_counting_communicator("axis", 2, 1, Device::cuda, counts);
    const Tensor nowhere(reinterpret_cast<void*>(256), DType::bf16, {1 << 20}, Device::cuda);
    axis->all_reduce({}, nowhere, Reduction::sum);
    Pending gather = axis->start_all_gather({}, nowhere.rows(1 << 19, 1 << 19), nowhere);
    gather.wait({});
    EXPECT_EQ(counts, (SentCounts{{{"axis", CollectiveKind::all_reduce}, {1, std::size_t{2} << 20}},
                                  {{"axis", CollectiveKind::all_gather}, {1, std::size_t{2} << 19}}}));
    EXPECT_TRUE(make_counting_communicator("axis", 1, 0, Device::cuda, counts)->idle());
}

}  // namespace
}  // namespace drover
