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

/// Keeps the messages of two ranks apart that belong to different purposes.
using Channel = std::int32_t;

/// A rank that told the others that it cannot continue.
struct FailedRank {
    int rank = -1;
    std::string reason;
};

/// A few numbers that a rank sends to another one unasked.
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

    /// A message on its way. Its bytes must stay until it has finished, or until break_off() has returned.
    using Request = int;
    virtual Request send(int to, Channel channel, const void* data, std::size_t bytes) = 0;
    virtual Request receive(int from, Channel channel, void* data, std::size_t capacity) = 0;
    /// The size of the message once it has finished, more than the capacity when it did not fit; the request
    /// is then forgotten. Nothing as long as it is under way.
    virtual std::optional<std::size_t> finished(Request request) = 0;

    /// Moves what can be moved. When that is nothing, waits until something happens, wake() is called, or at
    /// most this long; returning early is allowed.
    virtual void poll(std::chrono::microseconds at_most) = 0;
    /// Ends the poll that is waiting, or else the next one, at once. From any thread.
    virtual void wake() = 0;

    /// Needs nothing of the receiver. Notes that are on their way when the world is closed may be lost.
    virtual void send_note(int to, const Note& note) = 0;
    /// The notes that poll() has heard since the last call.
    virtual std::vector<ReceivedNote> take_notes() = 0;

    /// The first rank that reported a failure, of those that poll() has heard.
    virtual const std::optional<FailedRank>& failed_rank() const = 0;
    /// Tells all other ranks, as well as that is still possible.
    virtual void tell_failure(std::string_view reason) noexcept = 0;
    /// From now on nothing touches the bytes of unfinished messages, and only the destructor may be
    /// called.
    virtual void break_off() noexcept = 0;

    /// The orderly end, when no message is under way. May wait for the other ranks; returns when one has
    /// failed.
    virtual void close() = 0;
};

}  // namespace drover
