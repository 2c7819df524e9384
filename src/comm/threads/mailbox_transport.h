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
    struct Mailbox {
        std::mutex mutex;  // guards what follows; a thread holds at most one of these
        std::condition_variable changed;
        bool stirred = false;                       // since the owner last looked
        std::vector<Letter> letters;                // in order of sending
        std::vector<Transport::Request> delivered;  // the owner's sends that were copied by their receivers
        std::optional<FailedRank> failed;
    };

    std::vector<Mailbox> boxes_;
};

/// The receiver copies straight from the sender's memory.
std::unique_ptr<Transport> make_mailbox_transport(std::shared_ptr<Mailboxes> mailboxes, int rank);

}  // namespace drover
