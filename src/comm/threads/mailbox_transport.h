#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/transport.h"

namespace drover {

/// Where the ranks of one process leave messages for each other: one mailbox per rank.
class Mailboxes {
  public:
    explicit Mailboxes(int size) : boxes_(static_cast<std::size_t>(size)) {}
    int size() const { return static_cast<int>(boxes_.size()); }

  private:
    friend class MailboxTransport;
    /// A message that was sent and not yet taken; its bytes stay with the sender.
    struct Letter {
        int from;
        Channel channel;
        const void* data;
        std::size_t bytes;
        Transport::Request request;  // the sender's
    };
    /// A receive that is waiting for its message; its memory belongs to the owner of the mailbox.
    struct Expected {
        int from;
        Channel channel;
        void* data;
        std::size_t capacity;
        Transport::Request request;  // the owner's
    };
    struct Finished {
        Transport::Request request;  // the owner's
        std::size_t bytes;
    };
    struct Mailbox {
        std::mutex mutex;  // guards what follows; a thread holds at most one of these
        std::condition_variable changed;
        bool has_news = false;           // since the owner last looked
        std::vector<Letter> letters;     // in order of sending
        std::vector<Expected> expected;  // in order of the owner's receives
        std::vector<Finished> finished;  // by other ranks: the owner's sends, and receives they have filled
        std::optional<FailedRank> failed;
        std::vector<ReceivedNote> notes;
    };

    std::vector<Mailbox> boxes_;
};

/// Bytes are copied once, straight from the sender's memory: by the receiver, or, when they are few, by
/// whichever of the two is later, so that only the other one has to be woken.
std::unique_ptr<Transport> make_mailbox_transport(std::shared_ptr<Mailboxes> mailboxes, int rank);

}  // namespace drover
