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
        const Request request = new_request(bytes);
        const auto same = [&](const auto& other) { return other.from == rank_ && other.channel == channel; };
        stir(box(to), [&](Mailbox& theirs) {
            const auto place = std::find_if(theirs.expected.begin(), theirs.expected.end(), same);
            const bool waited_for = place != theirs.expected.end();
            if (bytes <= few_bytes && waited_for &&
                std::none_of(theirs.letters.begin(), theirs.letters.end(), same)) {
                std::memcpy(place->data, data, std::min(bytes, place->capacity));
                theirs.finished.push_back({place->request, bytes});
                theirs.expected.erase(place);
                slot(request).finished = true;
            } else {
                theirs.letters.push_back({rank_, channel, data, bytes, request});
                slot(request).waits_at = to;
            }
        });
        return request;
    }

    Request receive(int from, Channel channel, void* data, std::size_t capacity) override {
        const Request request = new_request(capacity);
        const auto same = [&](const auto& other) { return other.from == from && other.channel == channel; };
        std::optional<Mailboxes::Letter> delivered;
        {
            Mailbox& mine = own();
            const std::lock_guard lock(mine.mutex);
            const auto letter = std::find_if(mine.letters.begin(), mine.letters.end(), same);
            const bool there = letter != mine.letters.end();
            if (there && letter->bytes <= few_bytes &&
                std::none_of(mine.expected.begin(), mine.expected.end(), same)) {
                std::memcpy(data, letter->data, std::min(letter->bytes, capacity));
                finish(request, letter->bytes);
                delivered = *letter;
                mine.letters.erase(letter);
            } else {
                mine.expected.push_back({from, channel, data, capacity, request});
                if (there) mine.has_news = true;  // the next poll copies it
            }
        }
        if (delivered) tell_delivered(*delivered);
        return request;
    }

    std::optional<std::size_t> finished(Request request) override {
        if (!slot(request).finished) return std::nullopt;
        free_.push_back(request);
        return slot(request).bytes;
    }

    void poll(std::chrono::microseconds at_most) override {
        Mailbox& mine = own();
        {
            std::unique_lock lock(mine.mutex);
            mine.changed.wait_for(lock, at_most, [&] { return mine.has_news; });
            mine.has_news = false;
            if (mine.failed && !failed_) failed_ = mine.failed;
            notes_.insert(notes_.end(), mine.notes.begin(), mine.notes.end());
            mine.notes.clear();
            take_finished(mine);
            match(mine);
        }
        for (const auto& [place, letter] : matches_) {
            std::memcpy(place.data, letter.data, std::min(letter.bytes, place.capacity));
            finish(place.request, letter.bytes);
            tell_delivered(letter);
        }
        matches_.clear();
    }

    void wake() override {
        stir(own(), [](Mailbox&) {});
    }

    void send_note(int to, const Note& note) override {
        stir(box(to), [&](Mailbox& theirs) { theirs.notes.push_back({rank_, note}); });
    }
    std::vector<ReceivedNote> take_notes() override { return std::exchange(notes_, {}); }

    const std::optional<FailedRank>& failed_rank() const override { return failed_; }

    void tell_failure(std::string_view reason) noexcept override {
        for (int rank = 0; rank < size(); ++rank)
            if (rank != rank_)
                stir(box(rank), [&](Mailbox& theirs) {
                    if (!theirs.failed) theirs.failed = {rank_, std::string(reason)};
                });
    }

    void break_off() noexcept override {
        // Take back messages that are not being copied yet, and wait for the copies that are.
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            Slot& sent = slots_[i];
            if (sent.finished || sent.waits_at < 0) continue;
            Mailbox& theirs = box(sent.waits_at);
            const std::lock_guard lock(theirs.mutex);
            sent.finished = std::erase_if(theirs.letters, [&](const Mailboxes::Letter& letter) {
                                return letter.from == rank_ && letter.request == static_cast<Request>(i);
                            }) > 0;
        }
        Mailbox& mine = own();
        std::unique_lock lock(mine.mutex);
        mine.expected.clear();
        mine.changed.wait(lock, [&] {
            take_finished(mine);
            return std::all_of(slots_.begin(), slots_.end(),
                               [](const Slot& sent) { return sent.finished || sent.waits_at < 0; });
        });
    }

    void close() override {}

  private:
    using Mailbox = Mailboxes::Mailbox;
    /// Up to this size a copy costs less than waking a thread.
    static constexpr std::size_t few_bytes = 16384;

    struct Slot {
        bool finished = false;
        int waits_at = -1;      // the mailbox where a sent message lies
        std::size_t bytes = 0;  // of the message; a receive knows it when it has finished
    };
    struct Match {
        Mailboxes::Expected place;
        Mailboxes::Letter letter;
    };

    Mailbox& box(int rank) { return mailboxes_->boxes_[static_cast<std::size_t>(rank)]; }
    Mailbox& own() { return box(rank_); }

    template <class Change>
    static void stir(Mailbox& mailbox, const Change& change) {
        {
            const std::lock_guard lock(mailbox.mutex);
            change(mailbox);
            mailbox.has_news = true;
        }
        mailbox.changed.notify_one();
    }

    Slot& slot(Request request) { return slots_[static_cast<std::size_t>(request)]; }

    Request new_request(std::size_t bytes) {
        if (free_.empty()) {
            slots_.emplace_back();
            free_.push_back(static_cast<Request>(slots_.size() - 1));
        }
        const Request request = free_.back();
        free_.pop_back();
        slot(request) = {.bytes = bytes};
        return request;
    }

    void finish(Request request, std::size_t bytes) {
        slot(request).finished = true;
        slot(request).bytes = bytes;
    }

    void tell_delivered(const Mailboxes::Letter& letter) {
        stir(box(letter.from), [&](Mailbox& theirs) {
            theirs.finished.push_back({letter.request, letter.bytes});
        });
    }

    /// With the own mailbox locked.
    void take_finished(Mailbox& mine) {
        for (const auto& [request, bytes] : mine.finished) finish(request, bytes);
        mine.finished.clear();
    }

    /// With the own mailbox locked: the oldest letter for each receive, in order of their start.
    void match(Mailbox& mine) {
        std::erase_if(mine.expected, [&](const Mailboxes::Expected& place) {
            const auto letter = std::find_if(
                mine.letters.begin(), mine.letters.end(), [&](const Mailboxes::Letter& candidate) {
                    return candidate.from == place.from && candidate.channel == place.channel;
                });
            if (letter == mine.letters.end()) return false;
            matches_.push_back({place, *letter});
            mine.letters.erase(letter);
            return true;
        });
    }

    std::shared_ptr<Mailboxes> mailboxes_;
    int rank_;
    std::vector<Slot> slots_;  // requests are indices into this
    std::vector<Request> free_;
    std::vector<Match> matches_;
    std::optional<FailedRank> failed_;
    std::vector<ReceivedNote> notes_;
};

std::unique_ptr<Transport> make_mailbox_transport(std::shared_ptr<Mailboxes> mailboxes, int rank) {
    return std::make_unique<MailboxTransport>(std::move(mailboxes), rank);
}

}  // namespace drover
