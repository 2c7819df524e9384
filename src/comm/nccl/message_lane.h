#pragma once

#include "comm/nccl/link_watch.h"

namespace drover {

/// Sends to one rank, or receives from one, along an axis: a link of two ranks and a thread. Both are made
/// with the first message. The other rank may reach it only after collectives that come later on this rank,
/// so the lane waits for that rank instead of its caller.
///
/// A message is put on the GPU when both ends are ready for it, and not before. A kernel that waited there
/// would hold up the loading of other kernels, which CUDA does when they are first used and which waits for
/// all that run; what it waits for may need one of them.
class MessageLane {
  public:
    /// `control` compares calls, `connection` carries the link's id and what the sender tells the receiver,
    /// `answers` the opposite. All have the group's ranks, and must outlive the lane.
    MessageLane(LinkWatch& watch, const Group& group, Communicator& control, Communicator& connection,
                Communicator& answers, int peer, CollectiveKind kind);
    /// All messages have been waited for or dropped.
    ~MessageLane();
    MessageLane(const MessageLane&) = delete;
    MessageLane& operator=(const MessageLane&) = delete;

    LinkOperation* start(Stream stream, const CollectiveCall& call);

  private:
    void run();
    LinkOperation* next();
    void connect();
    void await_both_ends(LinkOperation& operation);

    LinkWatch& watch_;
    const Group& group_;
    Communicator& control_;
    Communicator& connection_;
    Communicator& answers_;
    const int peer_;
    const CollectiveKind kind_;
    std::int64_t messages_ = 0;
    WatchedLink link_;

    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::deque<LinkOperation*> queue_;
    bool ending_ = false;

    std::thread thread_;
};

}  // namespace drover
