#include "run/merged_leaf.h"

#include <algorithm>

#include "peft/low_rank_merge.h"

namespace drover {

std::vector<float> merged_leaf(const std::string& name, const Adapters& adapters,
                               const std::function<std::vector<float>(const std::string&)>& read) {
    std::vector<float> weight = read(name);
    const auto adapter = std::ranges::find(adapters.weights, name, &AdaptedWeight::leaf);
    if (adapter == adapters.weights.end()) return weight;
    const std::string module = name.substr(0, name.rfind('.'));
    const std::vector<float> a = read(module + ".lora_A.weight"), b = read(module + ".lora_B.weight"),
                             magnitude = adapters.magnitudes ? read(module + ".lora_magnitude_vector")
                                                             : std::vector<float>{};
    const auto columns = static_cast<std::int64_t>(a.size()) / adapter->rank;
    merge_low_rank({.a = a, .b = b, .magnitude = magnitude, .rank = adapter->rank, .scale = adapter->scale},
                   static_cast<std::int64_t>(weight.size()) / columns, columns, weight);
    return weight;
}

}  // namespace drover
