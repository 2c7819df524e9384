#pragma once

#include <map>
#include <utility>

#include "comm/nccl/message_lane.h"

namespace drover {

/// An axis whose collectives run on the GPU. There a collective waits for earlier work on the caller's
/// stream, and the caller's stream waits for the collective. The host waits for neither.
class NcclCommunicator final : public Communicator {
  public:
    /// `control` and `connection` are communicators of the world with the same ranks: one compares calls in
    /// the debug mode, the other distributes the ids of new links. Watch and link must outlive this.
    NcclCommunicator(LinkWatch& watch, WatchedLink& link, Group group, std::unique_ptr<Communicator> control,
                     std::unique_ptr<Communicator> connection);

  private:
    void* do_start(Stream stream, const CollectiveCall& call) override;
    void do_wait(Stream stream, void* operation) override;
    void do_drop(void* operation) noexcept override;
    void do_follow(void* operation) override;
    void do_check() override { watch_.check(); }
    void begin_group() override;
    void end_group(Stream stream) override;
    void cancel_group() noexcept override;

    void enqueue(Stream stream, LinkOperation& operation);
    MessageLane& lane(int peer, CollectiveKind kind);

    LinkWatch& watch_;
    WatchedLink& link_;
    const Group group_;
    std::unique_ptr<Communicator> control_;
    std::unique_ptr<Communicator> connection_;
    std::int64_t collectives_ = 0;
    bool grouping_ = false;
    LinkOperation* open_ = nullptr;  // the group's calls so far
    std::map<std::pair<int, CollectiveKind>, std::unique_ptr<MessageLane>> lanes_;
};

}  // namespace drover
