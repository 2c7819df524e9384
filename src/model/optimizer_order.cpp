#include "model/optimizer_order.h"

#include <algorithm>
#include <map>

#include "model/adapters.h"
#include "model/config.h"
#include "model/params.h"

namespace drover {
namespace {

std::map<std::string, LeafSpec> leaves_of(const ParamSpec& spec) {
    std::map<std::string, LeafSpec> leaves;
    spec.for_each_leaf([&](const LeafSpec& leaf) { leaves[leaf.name] = leaf; });
    return leaves;
}

void decayed_first(std::vector<NumberedParameter>& parameters,
                   const std::map<std::string, LeafSpec>& leaves) {
    std::stable_partition(parameters.begin(), parameters.end(), [&](const NumberedParameter& parameter) {
        return leaves.at(parameter.leaves[0]).decayed;
    });
}

}  // namespace

std::vector<NumberedParameter> optimizer_order(const ModelConfig& config, const HfCompat& compat) {
    const std::map<std::string, LeafSpec> leaves = leaves_of(make_param_spec(config, compat));
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
    decayed_first(parameters, leaves);
    return parameters;
}

std::vector<NumberedParameter> optimizer_order(const ModelConfig& config, const Adapters& adapters,
                                               const HfCompat& compat) {
    if (!adapters.any()) return optimizer_order(config, compat);
    const std::map<std::string, LeafSpec> leaves = leaves_of(make_param_spec(config, compat, adapters));
    std::vector<NumberedParameter> parameters;
    const auto add = [&](const std::string& name) {
        if (const auto leaf = leaves.find(name); leaf != leaves.end() && leaf->second.trained)
            parameters.push_back({name, {name}});
    };
    for (const std::string& name : names_in_module_order(config)) {
        add(name);
        const AdaptedWeight adapted{.leaf = name};
        if (!name.ends_with(".weight")) continue;
        for (const std::string& part : {adapted.a(), adapted.b(), adapted.magnitudes()}) add(part);
    }
    decayed_first(parameters, leaves);
    return parameters;
}

}  // namespace drover
