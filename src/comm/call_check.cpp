#include "comm/call_check.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {
namespace {

/// FNV-1a.
std::uint64_t hash_of(const Group& group) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001B3u; };
    for (const char c : group.axis) mix(static_cast<unsigned char>(c));
    for (const int rank : group.ranks) mix(static_cast<std::uint64_t>(rank) + 256);
    return hash;
}

std::string call_text(const CallHeader& header) {
    CollectiveCall call;
    call.kind = header.kind;
    call.dtype = header.dtype;
    call.count = header.count;
    if (header.kind == CollectiveKind::barrier) return "barrier";
    std::string text = fmt::format("{} of {}", name_of(header.kind), call.operands_text());
    if (header.kind == CollectiveKind::all_reduce) text += fmt::format(" ({})", name_of(header.reduction));
    if (header.kind == CollectiveKind::broadcast)
        text += fmt::format(" from rank {} of the axis", header.peer);
    return text;
}

bool same_call(const CallHeader& a, const CallHeader& b) {
    const bool counts_agree = a.kind == CollectiveKind::all_to_all
                                  ? a.count_to == b.count_from && a.count_from == b.count_to
                                  : a.count == b.count;
    // The two ends of a message.
    const bool kinds_agree = a.kind == b.kind ? !a.is_message() : a.is_message() && b.is_message();
    return kinds_agree && a.reduction == b.reduction && a.dtype == b.dtype && a.peer == b.peer &&
           counts_agree;
}

[[noreturn]] void throw_mismatch(std::string_view what) {
    throw Error(what, "This is a fault of the program: all ranks of an axis must make the same calls.");
}

}  // namespace

CallHeader header_of(const Group& group, const CollectiveCall& call, std::int64_t number, int receiver) {
    CallHeader header{.axis = hash_of(group),
                      .number = number,
                      .count = call.count,
                      .peer = call.kind == CollectiveKind::broadcast ? call.peer : -1,
                      .kind = call.kind,
                      .reduction = call.reduction,
                      .dtype = call.dtype};
    if (call.kind == CollectiveKind::all_to_all) {
        header.count_to = call.counts_to[static_cast<std::size_t>(receiver)];
        header.count_from = call.counts_from[static_cast<std::size_t>(receiver)];
    }
    return header;
}

void check_headers(const Group& group, const CallHeader& ours, const CallHeader& theirs, int peer) {
    const int our_rank = group.global(group.rank), their_rank = group.global(peer);
    if (ours.axis != theirs.axis)
        throw_mismatch(
            fmt::format("Rank {} is in {} number {} on axis {}, but rank {} made another axis in its place.",
                        our_rank, name_of(ours.kind), ours.number, group.axis, their_rank));
    if (same_call(ours, theirs) && ours.number == theirs.number) return;

    // The same sentence on both ranks.
    const bool ours_first = our_rank < their_rank;
    const CallHeader& first = ours_first ? ours : theirs;
    const CallHeader& second = ours_first ? theirs : ours;
    const int first_rank = ours_first ? our_rank : their_rank,
              second_rank = ours_first ? their_rank : our_rank;
    if (ours.number != theirs.number)
        throw_mismatch(fmt::format(
            "Rank {} calls {} as number {}, rank {} calls {} as number {} (on axis {}).", first_rank,
            call_text(first), first.number, second_rank, call_text(second), second.number, group.axis));
    if (ours.kind == CollectiveKind::all_to_all && theirs.kind == CollectiveKind::all_to_all &&
        ours.dtype == theirs.dtype)
        throw_mismatch(
            fmt::format("In all_to_all of {}, rank {} sends {} elements to rank {}, which expects {}, and "
                        "expects {} back, but gets "
                        "{} (collective {} on axis {}).",
                        name_of(ours.dtype), first_rank, first.count_to, second_rank, second.count_from,
                        first.count_from, second.count_to, ours.number, group.axis));
    throw_mismatch(fmt::format("Rank {} calls {}, rank {} calls {} ({} {} on axis {}).", first_rank,
                               call_text(first), second_rank, call_text(second),
                               ours.is_message() ? "message" : "collective", ours.number, group.axis));
}

void CallCheck::check(Exchange& exchange, const Group& group, const CollectiveCall& call,
                      std::int64_t number) {
    const auto size = static_cast<std::size_t>(group.size());
    ours_.resize(size);
    theirs_.resize(size);
    Round& round = exchange.round(0);
    for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank) continue;
        const auto index = static_cast<std::size_t>(peer);
        ours_[index] = header_of(group, call, number, peer);
        exchange.receive(round, peer, reinterpret_cast<std::byte*>(&theirs_[index]), sizeof(CallHeader));
        exchange.send(round, peer, reinterpret_cast<const std::byte*>(&ours_[index]), sizeof(CallHeader));
    }
    exchange.finish(round);
    for (int peer = 0; peer < group.size(); ++peer)
        if (peer != group.rank)
            check_headers(group, ours_[static_cast<std::size_t>(peer)],
                          theirs_[static_cast<std::size_t>(peer)], peer);
}

}  // namespace drover
