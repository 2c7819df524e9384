#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "comm/collective_call.h"
#include "comm/exchange.h"

namespace drover {

/// What ranks exchange about a call in debug mode; sent as raw bytes.
struct CallHeader {
    std::uint64_t axis = 0;  ///< hash of the axis's name and ranks
    std::int64_t number = 0;
    std::int64_t count = 0;
    std::int64_t count_to = 0;    ///< all_to_all: elements for the receiver of this header
    std::int64_t count_from = 0;  ///< all_to_all: elements that the receiver should send
    std::int32_t peer = -1;       ///< broadcast's root
    CollectiveKind kind = CollectiveKind::barrier;
    Reduction reduction = Reduction::sum;
    DType dtype = DType::u8;
    std::uint8_t padding = 0;  // no byte of the message is undefined

    bool is_message() const { return kind == CollectiveKind::send || kind == CollectiveKind::receive; }
};

static_assert(std::has_unique_object_representations_v<CallHeader>);

/// This rank's call as announced to rank `receiver` of the group.
CallHeader header_of(const Group& group, const CollectiveCall& call, std::int64_t number, int receiver);

/// Error that names both ranks' calls when they do not match. `theirs` came from rank `peer` of the group.
void check_headers(const Group& group, const CallHeader& ours, const CallHeader& theirs, int peer);

/// Exchanges the headers of a collective among the group, and checks them all.
class CallCheck {
  public:
    void check(Exchange& exchange, const Group& group, const CollectiveCall& call, std::int64_t number);

  private:
    std::vector<CallHeader> ours_;    // [rank]
    std::vector<CallHeader> theirs_;  // [rank]
};

}  // namespace drover
