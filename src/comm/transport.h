#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Separates messages of two ranks that serve different purposes.
using Channel = std::int32_t;

/// A rank that reported that it cannot continue.
struct FailedRank {
    int rank = -1;
    std::string reason;
};

/// A few numbers that a rank sends to another without a request.
using Note = std::array<std::int64_t, 4>;

struct ReceivedNote {
    int from = -1;
    Note note{};
};

/// Moves bytes between the ranks of a world (numbered globally), for one rank. Messages from one rank to
/// another on one channel are matched in the order in which they were started. Everything but wake() is
/// called by one thread only, which is also the one that made the transport. Error when the carrier itself
/// fails.
class Transport {
  public:
    virtual ~Transport() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    /// A message in flight. Its bytes must stay valid until it has finished, or until break_off() has
    /// returned.
    using Request = int;
    virtual Request send(int to, Channel channel, const void* data, std::size_t bytes) = 0;
    virtual Request receive(int from, Channel channel, void* data, std::size_t capacity) = 0;
    /// The size of the message once it has finished (more than the capacity if it did not fit); the request
    /// is then forgotten. Empty while it is in flight.
    virtual std::optional<std::size_t> finished(Request request) = 0;

    /// Moves what can be moved. If there is nothing to move, waits until something happens, wake() is called,
    /// or at most this long; returning early is allowed.
    virtual void poll(std::chrono::microseconds at_most) = 0;
    /// Ends the poll that is waiting, or else the next one, at once. From any thread.
    virtual void wake() = 0;

    /// Needs no action by the receiver. Notes in flight when the world is closed may be lost.
    virtual void send_note(int to, const Note& note) = 0;
    /// The notes that poll() has received since the last call.
    virtual std::vector<ReceivedNote> take_notes() = 0;

    /// The first rank that reported a failure, as far as poll() has received it.
    virtual const std::optional<FailedRank>& failed_rank() const = 0;
    /// Notifies all other ranks, as far as that is still possible.
    virtual void tell_failure(std::string_view reason) noexcept = 0;
    /// From now on nothing touches the bytes of unfinished messages, and only the destructor may be
    /// called.
    virtual void break_off() noexcept = 0;

    /// The orderly shutdown, when no message is in flight. May wait for the other ranks; returns when one has
    /// failed.
    virtual void close() = 0;
};

}  // namespace drover
