#include "comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"
#include "core/error.h"

namespace drover {
namespace {

/// Contributions to a reduction are received in pieces of at most this many bytes per rank.
constexpr std::size_t largest_piece_bytes = std::size_t{4} << 20;
/// A cache line; keeps every type aligned in the scratch memory.
constexpr std::size_t piece_alignment = 64;
/// Up to this size an all_reduce is one exchange of everything instead of two of parts.
constexpr std::size_t one_round_bytes = 8192;
/// From this size on, a broadcast first scatters parts, which the ranks then exchange.
constexpr std::size_t spread_bytes = 65536;

struct Bytes {
    std::byte* data = nullptr;
    std::size_t size = 0;

    Bytes piece(std::size_t begin, std::size_t length) const {
        if (begin >= size) return {};
        return {data + begin, std::min(length, size - begin)};
    }
};

std::byte* writable(const std::byte* data) {
    return const_cast<std::byte*>(data);
}

/// Elements [begin, begin+count) of n: rank's share of an even split, in which the first ranks get one more.
struct Share {
    std::int64_t begin;
    std::int64_t count;
};
Share even_share(std::int64_t n, int size, int rank) {
    const std::int64_t each = n / size, rest = n % size;
    return {each * rank + std::min<std::int64_t>(rank, rest), each + (rank < rest ? 1 : 0)};
}

/// Visits the other ranks, starting after this one, so that not all ranks send to the same one at the same
/// time.
template <class Visit>
void for_each_peer(const Exchange& exchange, const Visit& visit) {
    for (int step = 1; step < exchange.size(); ++step) visit((exchange.rank() + step) % exchange.size());
}

/// Sends out(peer) to every peer and fills in(peer) from it. Both ends must agree on the sizes.
template <class Out, class In>
void exchange_all(Exchange& exchange, const Out& out, const In& in) {
    std::size_t longest = 0;
    for_each_peer(exchange, [&](int peer) { longest = std::max({longest, out(peer).size, in(peer).size}); });
    Round& round = exchange.round(0);
    for (std::size_t begin = 0; begin < longest; begin += largest_message_bytes) {
        for_each_peer(exchange, [&](int peer) {
            const Bytes piece = in(peer).piece(begin, largest_message_bytes);
            exchange.receive(round, peer, piece.data, piece.size);
        });
        for_each_peer(exchange, [&](int peer) {
            const Bytes piece = out(peer).piece(begin, largest_message_bytes);
            exchange.send(round, peer, piece.data, piece.size);
        });
        exchange.finish(round);
    }
}

void copy_unless_same(const std::byte* from, std::byte* to, std::size_t bytes) {
    if (from != to && bytes > 0) std::memcpy(to, from, bytes);
}

void all_gather(Exchange& exchange, const CollectiveCall& call) {
    const std::size_t part = call.bytes() / static_cast<std::size_t>(exchange.size());
    const auto place = [&](int rank) { return Bytes{call.to + part * static_cast<std::size_t>(rank), part}; };
    copy_unless_same(call.from, place(exchange.rank()).data, part);
    exchange_all(
        exchange, [&](int) { return place(exchange.rank()); }, place);
}

void all_to_all(Exchange& exchange, const CollectiveCall& call) {
    const auto place = [&](const std::byte* base, std::span<const std::int64_t> counts, int rank) {
        std::int64_t before = 0;
        for (int r = 0; r < rank; ++r) before += counts[static_cast<std::size_t>(r)];
        const std::size_t element = size_of(call.dtype);
        return Bytes{writable(base) + static_cast<std::size_t>(before) * element,
                     static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]) * element};
    };
    const auto out = [&](int peer) { return place(call.from, call.counts_to, peer); };
    const auto in = [&](int peer) { return place(call.to, call.counts_from, peer); };
    copy_unless_same(out(exchange.rank()).data, in(exchange.rank()).data, in(exchange.rank()).size);
    exchange_all(exchange, out, in);
}

/// Every rank has its even share of data[count]; afterwards all have everything.
void gather_shares(Exchange& exchange, std::byte* data, std::int64_t count, DType dtype) {
    const auto share = [&](int rank) {
        const auto [begin, length] = even_share(count, exchange.size(), rank);
        return Bytes{data + static_cast<std::size_t>(begin) * size_of(dtype),
                     static_cast<std::size_t>(length) * size_of(dtype)};
    };
    exchange_all(
        exchange, [&](int) { return share(exchange.rank()); }, share);
}

/// Whether the root of a broadcast sends each rank only a part, which that rank then sends to the others.
bool spreads(const CollectiveCall& call, int size) {
    return size > 2 && call.bytes() >= spread_bytes;
}

void broadcast(Exchange& exchange, const CollectiveCall& call) {
    const bool is_root = exchange.rank() == call.peer;
    const bool spread = spreads(call, exchange.size());
    const auto part = [&](int rank) {
        if (!spread) return Bytes{call.to, call.bytes()};
        const auto [begin, length] = even_share(call.count, exchange.size(), rank);
        return Bytes{call.to + static_cast<std::size_t>(begin) * size_of(call.dtype),
                     static_cast<std::size_t>(length) * size_of(call.dtype)};
    };
    exchange_all(
        exchange, [&](int peer) { return is_root ? part(peer) : Bytes{}; },
        [&](int peer) { return peer == call.peer ? part(exchange.rank()) : Bytes{}; });
    if (spread) gather_shares(exchange, call.to, call.count, call.dtype);
}

/// to = this rank's share of the reduction of whole, where `share` gives a rank's elements. `to` may be that
/// share.
template <class ShareOf>
void reduce_shares(Exchange& exchange, const CollectiveCall& call, const std::byte* whole, std::byte* to,
                   const ShareOf& share) {
    const std::size_t element = size_of(call.dtype);
    const auto peers = static_cast<std::size_t>(std::max(exchange.size() - 1, 1));
    // One half is added up while the other is filled.
    const std::size_t half = exchange.scratch().size() / 2 / piece_alignment * piece_alignment;
    const std::size_t piece_bytes =
        std::min(largest_piece_bytes, half / peers) / piece_alignment * piece_alignment;
    const auto piece = static_cast<std::int64_t>(piece_bytes / element);
    const Share own = share(exchange.rank());
    std::int64_t longest = 0;
    for (int r = 0; r < exchange.size(); ++r) longest = std::max(longest, share(r).count);

    const auto place = [&](int round, int peer) {
        const int slot = peer < exchange.rank() ? peer : peer - 1;
        return exchange.scratch().data() + static_cast<std::size_t>(round & 1) * half +
               static_cast<std::size_t>(slot) * piece_bytes;
    };
    const auto length = [&](const Share& of, int round) {
        return std::clamp<std::int64_t>(of.count - round * piece, 0, piece);
    };
    const auto contribution = [&](const Share& of, int round) {
        return whole + static_cast<std::size_t>(of.begin + round * piece) * element;
    };
    const auto start = [&](int round) {
        for_each_peer(exchange, [&](int peer) {
            exchange.receive(exchange.round(round), peer, place(round, peer),
                             static_cast<std::size_t>(length(own, round)) * element);
        });
        for_each_peer(exchange, [&](int peer) {
            const Share theirs = share(peer);
            exchange.send(exchange.round(round), peer, contribution(theirs, round),
                          static_cast<std::size_t>(length(theirs, round)) * element);
        });
    };

    const std::span<const std::byte*> sources = exchange.pointers();
    const int rounds = static_cast<int>((longest + piece - 1) / piece);
    if (rounds > 0) start(0);
    for (int round = 0; round < rounds; ++round) {
        if (round + 1 < rounds) start(round + 1);
        exchange.finish(exchange.round(round));
        if (length(own, round) == 0) continue;
        for (int r = 0; r < exchange.size(); ++r)
            sources[static_cast<std::size_t>(r)] =
                r == exchange.rank() ? contribution(own, round) : place(round, r);
        reduce_in_order(call.reduction, call.dtype, sources,
                        to + static_cast<std::size_t>(round * piece) * element, length(own, round));
    }
}

void reduce_scatter(Exchange& exchange, const CollectiveCall& call) {
    const std::int64_t each = call.count / exchange.size();
    reduce_shares(exchange, call, call.from, call.to, [&](int rank) { return Share{each * rank, each}; });
}

void all_reduce_in_one_round(Exchange& exchange, const CollectiveCall& call) {
    const auto place = [&](int rank) {
        return Bytes{exchange.scratch().data() + static_cast<std::size_t>(rank) * one_round_bytes,
                     call.bytes()};
    };
    exchange_all(
        exchange,
        [&](int) {
            return Bytes{call.to, call.bytes()};
        },
        place);
    const std::span<const std::byte*> sources = exchange.pointers();
    for (int r = 0; r < exchange.size(); ++r)
        sources[static_cast<std::size_t>(r)] = r == exchange.rank() ? call.to : place(r).data;
    reduce_in_order(call.reduction, call.dtype, sources, call.to, call.count);
}

void all_reduce(Exchange& exchange, const CollectiveCall& call) {
    if (call.bytes() <= one_round_bytes) return all_reduce_in_one_round(exchange, call);
    const auto share = [&](int rank) { return even_share(call.count, exchange.size(), rank); };
    std::byte* own = call.to + static_cast<std::size_t>(share(exchange.rank()).begin) * size_of(call.dtype);
    reduce_shares(exchange, call, call.from, own, share);
    gather_shares(exchange, call.to, call.count, call.dtype);
}

void barrier(Exchange& exchange) {
    const auto place = [&](int rank) { return Bytes{exchange.scratch().data() + rank, 1}; };
    exchange_all(
        exchange, [&](int) { return place(exchange.rank()); }, place);
}

}  // namespace

std::size_t sent_bytes(const CollectiveCall& call, int size, int rank) {
    if (size == 1) return 0;
    const std::size_t whole = call.bytes(), element = size_of(call.dtype);
    const auto peers = static_cast<std::size_t>(size - 1);
    // Where all ranks have an even share, and send it to all others.
    const auto own_share = [&] {
        return static_cast<std::size_t>(even_share(call.count, size, rank).count) * element;
    };
    switch (call.kind) {
        case CollectiveKind::all_gather:
        case CollectiveKind::reduce_scatter:
            return whole / static_cast<std::size_t>(size) * peers;
        case CollectiveKind::all_reduce:
            if (whole <= one_round_bytes) return whole * peers;
            return whole - own_share() + own_share() * peers;
        case CollectiveKind::broadcast: {
            const bool is_root = rank == call.peer;
            if (!spreads(call, size)) return is_root ? whole * peers : 0;
            return (is_root ? whole - own_share() : 0) + own_share() * peers;
        }
        case CollectiveKind::all_to_all: {
            std::int64_t sent = -call.counts_to[static_cast<std::size_t>(rank)];
            for (const std::int64_t count : call.counts_to) sent += count;
            return static_cast<std::size_t>(sent) * element;
        }
        case CollectiveKind::barrier:
            return peers;
        case CollectiveKind::send:
            return whole;
        case CollectiveKind::receive:
            return 0;
    }
    bug("unknown collective");
}

std::size_t least_scratch_bytes(int world_size) {
    return static_cast<std::size_t>(world_size) * one_round_bytes;
}

void perform_collective(Exchange& exchange, const CollectiveCall& call) {
    switch (call.kind) {
        case CollectiveKind::all_reduce:
            return all_reduce(exchange, call);
        case CollectiveKind::reduce_scatter:
            return reduce_scatter(exchange, call);
        case CollectiveKind::all_gather:
            return all_gather(exchange, call);
        case CollectiveKind::broadcast:
            return broadcast(exchange, call);
        case CollectiveKind::all_to_all:
            return all_to_all(exchange, call);
        case CollectiveKind::barrier:
            return barrier(exchange);
        case CollectiveKind::send:
        case CollectiveKind::receive:
            break;
    }
    bug("a message was performed as a collective");
}

}  // namespace drover
