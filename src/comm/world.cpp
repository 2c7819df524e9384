#include "comm/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace drover {
namespace {

class WorldCommunicator final : public Communicator {
  public:
    WorldCommunicator(CommunicationThread& thread, Group group)
        : Communicator(group.axis, group.size(), group.rank, Device::cpu),
          thread_(thread),
          group_(std::move(group)),
          sent_(group_.ranks.size()),
          received_(group_.ranks.size()) {}

  private:
    void* do_start(Stream, const CollectiveCall& call) override {
        std::int64_t& number = call.kind == CollectiveKind::send ? sent_[static_cast<std::size_t>(call.peer)]
                               : call.kind == CollectiveKind::receive
                                   ? received_[static_cast<std::size_t>(call.peer)]
                                   : collectives_;
        return thread_.start(group_, call, ++number);
    }
    // A CPU stream runs inline: what comes later on it is what the caller does next.
    void do_wait(Stream, void* operation) override { thread_.wait(static_cast<Operation*>(operation)); }
    void do_drop(void* operation) noexcept override { thread_.drop(static_cast<Operation*>(operation)); }
    void do_check() override { thread_.check(); }

    CommunicationThread& thread_;
    const Group group_;
    std::int64_t collectives_ = 0;
    std::vector<std::int64_t> sent_;      // messages so far, by rank
    std::vector<std::int64_t> received_;  // messages so far, by rank
};

}  // namespace

World::World(CommunicationThread::MakeTransport make_transport, const WorldOptions& options)
    : thread_(std::move(make_transport), options), exceptions_before_(std::uncaught_exceptions()) {}

World::~World() {
    if (std::uncaught_exceptions() > exceptions_before_) fail("it ended because of its own error.");
}

std::unique_ptr<Communicator> World::make_communicator(std::string axis, std::vector<int> ranks,
                                                       SingleRankAxis single_rank) {
    const auto self = std::find(ranks.begin(), ranks.end(), rank());
    require(self != ranks.end(), "a rank makes a communicator that it is not in");
    std::vector<int> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    require(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() && sorted.front() >= 0 &&
                sorted.back() < size(),
            "a communicator's ranks lie outside the world, or repeat");

    const auto own = static_cast<int>(self - ranks.begin());
    Group group{.axis = std::move(axis),
                .ranks = std::move(ranks),
                .rank = own,
                .collectives = next_channel_,
                .messages = next_channel_ + 1};
    next_channel_ += 2;
    if (group.size() == 1 && single_rank == SingleRankAxis::idles) return make_self_communicator(group.axis);
    return std::make_unique<WorldCommunicator>(thread_, std::move(group));
}

void run_rank(World& world, const std::function<void(World&)>& work) {
    try {
        work(world);
        world.close();
    } catch (const std::exception& error) {
        world.fail(error.what());
        throw;
    } catch (...) {
        world.fail("it threw something unknown.");
        throw;
    }
}

}  // namespace drover
