#include "model/optimizer_order.h"

#include <algorithm>
#include <map>

#include "model/config.h"
#include "model/params.h"

namespace drover {
std::vector<NumberedParameter> optimizer_order(const ModelConfig& config, const HfCompat& compat) {
    std::map<std::string, LeafSpec> leaves;
    make_param_spec(config, compat).for_each_leaf([&](const LeafSpec& leaf) { leaves[leaf.name] = leaf; });
    std::vector<NumberedParameter> parameters;
    for (const std::string& name : names_in_module_order(config)) {
        const std::string& fused = leaves.at(name).fused_tensor;
        const std::string& tensor = fused.empty() ? name : fused;
        const auto same = std::find_if(parameters.begin(), parameters.end(),
                                       [&](const auto& p) { return p.name == tensor; });
        if (same != parameters.end())
            same->leaves.push_back(name);
        else
            parameters.push_back({tensor, {name}});
    }
    std::stable_partition(parameters.begin(), parameters.end(),
                          [&](const auto& p) { return leaves.at(p.leaves[0]).decayed; });
    return parameters;
}

}  // namespace drover
