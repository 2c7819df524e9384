#include "comm/threads/mailbox_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace drover {

class MailboxTransport final : public Transport {
  public:
    MailboxTransport(std::shared_ptr<Mailboxes> mailboxes, int rank)
        : mailboxes_(std::move(mailboxes)), rank_(rank) {
        require(rank >= 0 && rank < mailboxes_->size(), "a rank outside its world");
    }

    int rank() const override { return rank_; }
    int size() const override { return mailboxes_->size(); }

    Request send(int to, Channel channel, const void* data, std::size_t bytes) override {
        const Request request = new_request({.sends = true, .peer = to, .bytes = bytes});
        stir(box(to), [&](Mailbox& theirs) {
            theirs.letters.push_back({rank_, channel, data, bytes, request});
        });
        return request;
    }

    Request receive(int from, Channel channel, void* data, std::size_t capacity) override {
        const Request request =
            new_request({.peer = from, .channel = channel, .data = data, .capacity = capacity});
        receives_.push_back(request);
        // A letter that waits already makes the next poll return at once.
        stir(own(), [](Mailbox&) {});
        return request;
    }

    std::optional<std::size_t> finished(Request request) override {
        const Slot& slot = slots_[static_cast<std::size_t>(request)];
        if (!slot.finished) return std::nullopt;
        free_.push_back(request);
        return slot.bytes;
    }

    void poll(std::chrono::microseconds at_most) override {
        Mailbox& mine = own();
        {
            std::unique_lock lock(mine.mutex);
            mine.changed.wait_for(lock, at_most, [&] { return mine.stirred; });
            mine.stirred = false;
            if (mine.failed && !failed_) failed_ = mine.failed;
            take_deliveries(mine);
            match(mine);
        }
        copy_matched();
    }

    void wake() override {
        stir(own(), [](Mailbox&) {});
    }

    const std::optional<FailedRank>& failed_rank() const override { return failed_; }

    void tell_failure(std::string_view reason) noexcept override {
        for (int rank = 0; rank < size(); ++rank)
            if (rank != rank_)
                stir(box(rank), [&](Mailbox& theirs) {
                    if (!theirs.failed) theirs.failed = {rank_, std::string(reason)};
                });
    }

    void break_off() noexcept override {
        // Take back what nobody has begun to copy, and wait for the copies that are being made.
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            Slot& slot = slots_[i];
            if (!slot.sends || slot.finished) continue;
            Mailbox& theirs = box(slot.peer);
            const std::lock_guard lock(theirs.mutex);
            const auto letter = std::find_if(
                theirs.letters.begin(), theirs.letters.end(), [&](const Mailboxes::Letter& candidate) {
                    return candidate.from == rank_ && candidate.request == static_cast<Request>(i);
                });
            if (letter == theirs.letters.end()) continue;
            theirs.letters.erase(letter);
            slot.finished = true;
        }
        Mailbox& mine = own();
        std::unique_lock lock(mine.mutex);
        mine.changed.wait(lock, [&] {
            take_deliveries(mine);
            return std::all_of(slots_.begin(), slots_.end(),
                               [](const Slot& slot) { return !slot.sends || slot.finished; });
        });
        receives_.clear();
    }

    void close() override {}

  private:
    using Mailbox = Mailboxes::Mailbox;
    struct Slot {
        bool sends = false;
        int peer = 0;
        Channel channel = 0;
        void* data = nullptr;
        std::size_t capacity = 0;
        bool finished = false;
        std::size_t bytes = 0;  // of the message; a receive knows it when it has finished
    };
    struct Match {
        Request receive;
        Mailboxes::Letter letter;
    };

    Mailbox& box(int rank) { return mailboxes_->boxes_[static_cast<std::size_t>(rank)]; }
    Mailbox& own() { return box(rank_); }

    template <class Change>
    static void stir(Mailbox& mailbox, const Change& change) {
        {
            const std::lock_guard lock(mailbox.mutex);
            change(mailbox);
            mailbox.stirred = true;
        }
        mailbox.changed.notify_one();
    }

    Request new_request(const Slot& slot) {
        if (free_.empty()) {
            slots_.emplace_back();
            free_.push_back(static_cast<Request>(slots_.size() - 1));
        }
        const Request request = free_.back();
        free_.pop_back();
        slots_[static_cast<std::size_t>(request)] = slot;
        return request;
    }

    /// With the own mailbox locked.
    void take_deliveries(Mailbox& mine) {
        for (const Request request : mine.delivered)
            slots_[static_cast<std::size_t>(request)].finished = true;
        mine.delivered.clear();
    }

    /// With the own mailbox locked: the oldest letter for each receive, in order of their start.
    void match(Mailbox& mine) {
        std::erase_if(receives_, [&](Request request) {
            const Slot& slot = slots_[static_cast<std::size_t>(request)];
            const auto letter = std::find_if(
                mine.letters.begin(), mine.letters.end(), [&](const Mailboxes::Letter& candidate) {
                    return candidate.from == slot.peer && candidate.channel == slot.channel;
                });
            if (letter == mine.letters.end()) return false;
            matches_.push_back({request, *letter});
            mine.letters.erase(letter);
            return true;
        });
    }

    void copy_matched() {
        for (const auto& [request, letter] : matches_) {
            Slot& slot = slots_[static_cast<std::size_t>(request)];
            std::memcpy(slot.data, letter.data, std::min(letter.bytes, slot.capacity));
            slot.bytes = letter.bytes;
            slot.finished = true;
            stir(box(letter.from),
                 [&, sent = letter.request](Mailbox& theirs) { theirs.delivered.push_back(sent); });
        }
        matches_.clear();
    }

    std::shared_ptr<Mailboxes> mailboxes_;
    int rank_;
    std::vector<Slot> slots_;  // requests are indices into this
    std::vector<Request> free_;
    std::vector<Request> receives_;  // not yet matched, in order of their start
    std::vector<Match> matches_;
    std::optional<FailedRank> failed_;
};

std::unique_ptr<Transport> make_mailbox_transport(std::shared_ptr<Mailboxes> mailboxes, int rank) {
    return std::make_unique<MailboxTransport>(std::move(mailboxes), rank);
}

}  // namespace drover
