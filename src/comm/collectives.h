#pragma once

#include "comm/collective_call.h"
#include "comm/exchange.h"

namespace drover {

/// Performs a collective (not a message between two ranks) on the exchange's group; returns when this rank's
/// part is done and its operands are free.
///
/// Everything is a direct exchange between all pairs. Reductions get the other ranks' contributions in pieces
/// through the scratch memory and add them in rank order, so the bits of a result depend on nothing but the
/// operands.
void perform_collective(Exchange& exchange, const CollectiveCall& call);

/// How many bytes rank `rank` of an axis of `size` ranks sends to others for a call.
std::size_t sent_bytes(const CollectiveCall& call, int size, int rank);

/// The scratch that a world of this many ranks needs at least.
std::size_t least_scratch_bytes(int world_size);

/// No message is larger, so that transports may count bytes in 31 bits.
constexpr std::size_t largest_message_bytes = std::size_t{64} << 20;

}  // namespace drover
