#include "run/merged_leaf.h"

#include <algorithm>

#include "peft/low_rank_merge.h"

namespace drover {

std::vector<float> merged_leaf(const std::string& name, const Adapters& adapters,
                               const std::function<std::vector<float>(const std::string&)>& read) {
    std::vector<float> weight = read(name);
    const auto adapter = std::ranges::find(adapters.weights, name, &AdaptedWeight::leaf);
    if (adapter == adapters.weights.end()) return weight;
    std::vector<float> a = read(adapter->a()), b = read(adapter->b());
    const std::vector<float> magnitude =
        adapters.magnitudes ? read(adapter->magnitudes()) : std::vector<float>{};
    if (adapter->is_embedding()) {  // A [rank,V], B [H,rank]
        const auto length = [&](const std::vector<float>& matrix) {
            return static_cast<std::int64_t>(matrix.size()) / adapter->rank;
        };
        std::vector<float> turned = transposed(b, length(b), adapter->rank);
        b = transposed(a, adapter->rank, length(a));
        a = std::move(turned);
    }
    const auto columns = static_cast<std::int64_t>(a.size()) / adapter->rank;
    merge_low_rank({.a = a, .b = b, .magnitude = magnitude, .rank = adapter->rank, .scale = adapter->scale},
                   static_cast<std::int64_t>(weight.size()) / columns, columns, weight);
    return weight;
}

}  // namespace drover
