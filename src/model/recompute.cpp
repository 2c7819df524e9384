#include "model/recompute.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {

Recompute recompute_from_name(std::string_view name, std::string_view what) {
    if (name == "none") return Recompute::none;
    if (name == "selective") return Recompute::selective;
    if (name == "selective_mlp") return Recompute::selective_mlp;
    if (name == "full") return Recompute::full;
    throw UsageError(fmt::format("{} is \"{}\".", what, name), "Use none, selective, selective_mlp or full.");
}

}  // namespace drover
