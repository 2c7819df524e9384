#pragma once

#include <map>
#include <utility>

#include "comm/communicator.h"

namespace drover {

/// What a rank would have sent.
struct SentCount {
    std::int64_t calls = 0;
    std::size_t bytes = 0;

    bool operator==(const SentCount&) const = default;
};

/// By axis and kind.
using SentCounts = std::map<std::pair<std::string, CollectiveKind>, SentCount>;

/// An axis that counts what this rank is asked to send and moves nothing: operands are checked as always, but
/// neither read nor written, so they need no memory. Idle with one rank. Adds to `counts`, which must outlive
/// it.
std::unique_ptr<Communicator> make_counting_communicator(std::string axis, int size, int rank, Device device,
                                                         SentCounts& counts);

}  // namespace drover
