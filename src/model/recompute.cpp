#include "model/recompute.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace drover {

Recompute recompute_from_name(std::string_view name, std::string_view what) {
    const auto found = std::ranges::find(recompute_names, name);
    if (found != recompute_names.end()) return static_cast<Recompute>(found - recompute_names.begin());
    throw UsageError(fmt::format("{} is \"{}\".", what, name),
                     "Use none, selective, selective_mlp, selective_attention or full.");
}

}  // namespace drover
