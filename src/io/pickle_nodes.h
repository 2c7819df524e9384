#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "io/torch_pickle.h"

namespace drover {

/// A value and what it holds, by number of the parts.
struct PickleNode {
    PickleValue::Kind kind = PickleValue::Kind::none;
    std::int64_t integer = 0;  ///< also a boolean's value, and a tensor's index among the tensors
    double real = 0;
    std::string_view text;             ///< of texts and bytes; an object's name
    std::vector<std::uint32_t> parts;  ///< of lists and tuples; of dicts, keys and values alternate
};

struct PickleNodes {
    std::string where;
    std::vector<PickleNode> nodes;
    std::vector<PickleTensor> tensors;
    std::deque<std::string> encoded;  ///< bytes that are not in the file in this form
    std::uint32_t root = 0;
};

}  // namespace drover
