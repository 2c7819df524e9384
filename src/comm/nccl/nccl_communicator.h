#pragma once

#include <map>
#include <utility>

#include "comm/nccl/message_lane.h"

namespace drover {

/// An axis whose collectives run on the GPU. There a collective waits for earlier work on the caller's
/// stream, and the caller's stream waits for the collective. The host waits for neither.
class NcclCommunicator final : public Communicator {
  public:
    /// Communicators of the world with the same ranks, for what the hosts tell each other.
    struct Hosts {
        std::unique_ptr<Communicator> control;     ///< compares calls in the debug mode
        std::unique_ptr<Communicator> connection;  ///< distributes the ids of new links
        std::unique_ptr<Communicator> answers;     ///< of a message's receiver to its sender
    };
    /// Watch and link must outlive this.
    NcclCommunicator(LinkWatch& watch, WatchedLink& link, Group group, Hosts hosts);

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
    Hosts hosts_;
    std::int64_t collectives_ = 0;
    bool grouping_ = false;
    LinkOperation* open_ = nullptr;  // the group's calls so far
    std::map<std::pair<int, CollectiveKind>, std::unique_ptr<MessageLane>> lanes_;
};

}  // namespace drover
