#include "comm/collective_call.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

std::string_view name_of(CollectiveKind kind) {
    switch (kind) {
        case CollectiveKind::all_reduce:
            return "all_reduce";
        case CollectiveKind::reduce_scatter:
            return "reduce_scatter";
        case CollectiveKind::all_gather:
            return "all_gather";
        case CollectiveKind::broadcast:
            return "broadcast";
        case CollectiveKind::all_to_all:
            return "all_to_all";
        case CollectiveKind::barrier:
            return "barrier";
        case CollectiveKind::send:
            return "send";
        case CollectiveKind::receive:
            return "receive";
    }
    bug("unknown collective");
}

std::string_view name_of(Reduction reduction) {
    switch (reduction) {
        case Reduction::sum:
            return "sum";
        case Reduction::max:
            return "max";
        case Reduction::min:
            return "min";
    }
    bug("unknown reduction");
}

std::string CollectiveCall::operands_text() const {
    if (kind == CollectiveKind::barrier) return "nothing";
    return fmt::format("{} {}", count, name_of(dtype));
}

}  // namespace drover
