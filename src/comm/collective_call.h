#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace drover {

enum class Reduction : std::uint8_t { sum, max, min };

enum class CollectiveKind : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    all_to_all,
    barrier,
    send,
    receive
};

std::string_view name_of(CollectiveKind kind);
std::string_view name_of(Reduction reduction);

/// One rank's part in a collective or message, its operands already checked. Ranks are numbered within the
/// axis.
struct CollectiveCall {
    CollectiveKind kind = CollectiveKind::barrier;
    Reduction reduction = Reduction::sum;
    DType dtype = DType::u8;
    std::int64_t count = 0;  ///< elements of the tensor, or of the larger one where there are two
    int peer = -1;           ///< broadcast's root, send's destination, receive's source
    const std::byte* from = nullptr;
    std::byte* to = nullptr;  ///< the same as `from` where the operation works in place
    /// all_to_all: elements for, and from, each rank.
    std::span<const std::int64_t> counts_to = {};
    std::span<const std::int64_t> counts_from = {};
    /// The ranks compare the call (see WorldOptions::comm_debug) and move nothing: another transport does.
    bool only_compared = false;

    /// A message between two ranks, which is not part of the order of the axis's collectives.
    bool is_message() const { return kind == CollectiveKind::send || kind == CollectiveKind::receive; }
    std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
    /// "24 float32", "nothing" for a barrier.
    std::string operands_text() const;
};

}  // namespace drover
