#pragma once

#include <nlohmann/json.hpp>

namespace drover {

/// JSON that keeps the order of keys.
using Json = nlohmann::ordered_json;

}  // namespace drover
