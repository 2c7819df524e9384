#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "core/arena.h"

namespace drover {

/// The ranks of an axis in global numbers, and this rank's index among them.
struct Group {
    std::string axis;
    std::vector<int> ranks;
    int rank = 0;             ///< index of this rank in `ranks`
    Channel collectives = 0;  ///< the channel of the axis's collectives
    Channel messages = 0;     ///< the channel of its sends and receives

    int size() const { return static_cast<int>(ranks.size()); }
    int global(int peer) const { return ranks[static_cast<std::size_t>(peer)]; }
};

/// Messages that are waited for together.
class Round {
  public:
    bool empty() const { return messages_.empty(); }

  private:
    friend class Exchange;
    struct Message {
        Transport::Request request;
        int peer;
        bool incoming;
        std::size_t bytes;
    };
    std::vector<Message> messages_;
};

/// The primitives of the collective algorithms: messages to and from the other ranks of one group at a time,
/// and scratch memory of a fixed size. Ranks are numbered within the group. Lives as long as the
/// communication thread, so that a collective allocates nothing.
class Exchange {
  public:
    /// `attend` is called while there is nothing to do but wait. It waits briefly, and throws to abort.
    Exchange(Transport& transport, std::size_t scratch_bytes, std::function<void()> attend);

    /// The following messages belong to this group.
    void begin(const Group& group);

    int size() const { return group_->size(); }
    int rank() const { return group_->rank; }

    /// Adds a message to the round; one without bytes is not sent. Both ends must agree on the number.
    void send(Round& round, int peer, const std::byte* data, std::size_t bytes);
    void receive(Round& round, int peer, std::byte* data, std::size_t bytes);
    /// Returns when all messages of the round are sent and received. Error when one had another size than its
    /// receiver expected.
    void finish(Round& round);

    /// Two rounds, empty at the beginning of a collective.
    Round& round(int index) { return rounds_[index & 1]; }
    /// All of the scratch memory, page-aligned.
    std::span<std::byte> scratch() { return scratch_; }
    /// One pointer per rank, for the algorithm's use.
    std::span<const std::byte*> pointers() { return pointers_; }

    /// "received nothing from ranks 2, 3; rank 1 received nothing": what the unfinished rounds wait for, in
    /// global ranks.
    std::string missing() const;

  private:
    Transport& transport_;
    std::function<void()> attend_;
    const Group* group_ = nullptr;
    Round rounds_[2];
    MemoryBlock memory_;
    std::span<std::byte> scratch_;
    std::vector<const std::byte*> pointers_;
};

/// "rank 3", "ranks 1, 2".
std::string ranks_text(std::span<const int> ranks);

/// Ranks that call different collectives without the debug mode show up as messages of a wrong size.
[[noreturn]] void throw_size_mismatch(const Group& group, int from, std::size_t came, std::size_t expected);

}  // namespace drover
