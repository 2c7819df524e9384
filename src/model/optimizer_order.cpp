#include "model/optimizer_order.h"

#include <algorithm>
#include <string_view>

#include "model/params.h"

namespace drover {
namespace {

constexpr std::string_view moe = "block_sparse_moe.", expert_list = "block_sparse_moe.experts.";

/// transformers 5.x's name of the tensor that contains this leaf of the experts; other leaves keep their own
/// name.
std::string fused_name(const std::string& leaf) {
    const auto place = leaf.find(moe);
    if (place == std::string::npos) return leaf;
    const std::string mlp = leaf.substr(0, place) + "mlp.";
    if (leaf.compare(place, expert_list.size(), expert_list) != 0)
        return mlp + leaf.substr(place + moe.size());
    return mlp + (leaf.ends_with(".w2.weight") ? "experts.down_proj" : "experts.gate_up_proj");
}

}  // namespace

std::vector<NumberedParameter> optimizer_order(const ModelConfig& config, const HfCompat& compat) {
    std::vector<NumberedParameter> parameters;
    for (const std::string& leaf : names_in_module_order(config)) {
        const std::string name = compat.mixtral_experts_fused ? fused_name(leaf) : leaf;
        const auto same =
            std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
        if (same != parameters.end())
            same->leaves.push_back(leaf);
        else
            parameters.push_back({name, {leaf}});
    }
    const bool all_decayed = config.has_experts() && compat.mixtral_norms_decayed;
    std::stable_partition(parameters.begin(), parameters.end(),
                          [&](const auto& p) { return all_decayed || takes_weight_decay(p.name); });
    return parameters;
}

}  // namespace drover
