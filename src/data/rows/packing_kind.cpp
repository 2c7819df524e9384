#include "data/rows/packing_kind.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

std::string_view packing_name(Packing packing) {
    switch (packing) {
        case Packing::hf:
            return "hf";
        case Packing::lossless:
            return "lossless";
        case Packing::none:
            return "none";
    }
    bug("an unknown packing");
}

Packing packing_from_name(std::string_view name, std::string_view where) {
    for (const Packing packing : {Packing::hf, Packing::lossless, Packing::none})
        if (name == packing_name(packing)) return packing;
    throw UsageError(fmt::format("{} is \"{}\".", where, name), "Use hf, lossless or none.");
}

}  // namespace drover
