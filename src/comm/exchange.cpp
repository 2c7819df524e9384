#include "comm/exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace drover {

Exchange::Exchange(Transport& transport, std::size_t scratch_bytes, std::function<void()> attend)
    : transport_(transport),
      attend_(std::move(attend)),
      memory_(allocate_host_memory(scratch_bytes)),
      scratch_(static_cast<std::byte*>(memory_.get()), scratch_bytes) {}

void Exchange::begin(const Group& group) {
    require(rounds_[0].empty() && rounds_[1].empty(), "a collective ended before its messages");
    group_ = &group;
    pointers_.resize(group.ranks.size());
}

void Exchange::send(Round& round, int peer, const std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    const auto request = transport_.send(group_->global(peer), group_->collectives, data, bytes);
    round.messages_.push_back({request, peer, false, bytes});
}

void Exchange::receive(Round& round, int peer, std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    const auto request = transport_.receive(group_->global(peer), group_->collectives, data, bytes);
    round.messages_.push_back({request, peer, true, bytes});
}

void Exchange::finish(Round& round) {
    for (;;) {
        std::erase_if(round.messages_, [&](const Round::Message& message) {
            const auto bytes = transport_.finished(message.request);
            if (bytes && *bytes != message.bytes)
                throw_size_mismatch(*group_, message.peer, *bytes, message.bytes);
            return bytes.has_value();
        });
        if (round.empty()) return;
        attend_();
    }
}

std::string Exchange::missing() const {
    std::vector<int> silent, full;
    for (const Round& round : rounds_)
        for (const Round::Message& message : round.messages_)
            (message.incoming ? silent : full).push_back(group_->global(message.peer));
    const auto sort = [](std::vector<int>& ranks) {
        std::sort(ranks.begin(), ranks.end());
        ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    };
    sort(silent);
    sort(full);
    // A rank that sends nothing does not receive either.
    std::erase_if(full, [&](int rank) { return std::binary_search(silent.begin(), silent.end(), rank); });
    std::vector<std::string> parts;
    if (!silent.empty()) parts.push_back(fmt::format("received nothing from {}", ranks_text(silent)));
    if (!full.empty()) parts.push_back(fmt::format("{} received nothing", ranks_text(full)));
    return fmt::format("{}", fmt::join(parts, "; "));
}

std::string ranks_text(std::span<const int> ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

void throw_size_mismatch(const Group& group, int from, std::size_t came, std::size_t expected) {
    throw Error(fmt::format("On axis {}, rank {} expected {} bytes from rank {} and got {}{}.", group.axis,
                            group.global(group.rank), expected, group.global(from),
                            came > expected ? "more than " : "", std::min(came, expected)),
                "The ranks call different collectives; comm_debug names the calls.");
}

}  // namespace drover
