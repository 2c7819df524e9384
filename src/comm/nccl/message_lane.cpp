#include "comm/nccl/message_lane.h"

#include <fmt/format.h>
#include <pthread.h>

namespace drover {

MessageLane::MessageLane(LinkWatch& watch, const Group& group, Communicator& control,
                         Communicator& connection, Communicator& answers, int peer, CollectiveKind kind)
    : watch_(watch),
      group_(group),
      control_(control),
      connection_(connection),
      answers_(answers),
      peer_(peer),
      kind_(kind),
      thread_([this] { run(); }) {
    pthread_setname_np(thread_.native_handle(), "drover-lane");
}

MessageLane::~MessageLane() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

LinkOperation* MessageLane::start(Stream stream, const CollectiveCall& call) {
    LinkOperation* operation = watch_.take(group_, ++messages_);
    operation->add(call);
    try {
        watch_.gpu().record(stream, operation->ready);
    } catch (...) {
        watch_.cancel(*operation);
        watch_.release(*operation);
        throw;
    }
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(operation);
    }
    changed_.notify_all();
    return operation;
}

LinkOperation* MessageLane::next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return nullptr;
    LinkOperation* operation = queue_.front();
    queue_.pop_front();
    return operation;
}

/// The sender makes the link's id.
void MessageLane::connect() {
    const bool sends = kind_ == CollectiveKind::send;
    const int sender = sends ? group_.rank : peer_, receiver = sends ? peer_ : group_.rank;
    LinkId id{};
    const Tensor bytes(id.data(), DType::u8, {static_cast<std::int64_t>(id.size())});
    if (sends) {
        id = watch_.gpu().make_id();
        connection_.send({}, bytes, peer_);
    } else {
        connection_.receive({}, bytes, peer_);
    }
    link_.ranks = {group_.global(sender), group_.global(receiver)};
    link_.rank = sends ? 0 : 1;
    watch_.connect(link_, id, [&] {
        return fmt::format("messages from rank {} to rank {} on axis {}", link_.ranks[0], link_.ranks[1],
                           group_.axis);
    });
}

void MessageLane::await_both_ends(LinkOperation& operation) {
    watch_.wait_ready(operation);
    const bool sends = kind_ == CollectiveKind::send;
    std::uint8_t own = 1, other = 0;
    const Tensor told(&own, DType::u8, {1}), heard(&other, DType::u8, {1});
    Communicator& to_peer = sends ? connection_ : answers_;
    Communicator& from_peer = sends ? answers_ : connection_;
    Pending telling = to_peer.start_send({}, told, peer_);
    from_peer.receive({}, heard, peer_);
    telling.wait({});
}

void MessageLane::run() {
    bool known_to_watch = false, connected = false;
    while (LinkOperation* operation = next()) {
        try {
            watch_.gpu().use_on_this_thread();
            if (watch_.world().options().comm_debug)
                control_.wait({}, control_.start_comparison(operation->calls.front()));
            known_to_watch = true;
            if (!connected) connect();
            connected = true;
            await_both_ends(*operation);
            operation->peer_on_link = 1 - link_.rank;
            watch_.enqueue(link_, *operation);
        } catch (...) {
            watch_.break_off(std::current_exception());
            watch_.cancel(*operation);
        }
    }
    if (known_to_watch) watch_.remove(link_);
}

}  // namespace drover
