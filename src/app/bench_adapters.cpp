#include "app/bench_adapters.h"

#include <fmt/format.h>

#include <algorithm>

#include "args/command.h"
#include "core/error.h"
#include "core/words.h"
#include "model/config.h"
#include "model/params.h"

namespace drover {
namespace {

/// "q_proj" of "model.layers.0.self_attn.q_proj.weight"
std::string_view module_of(std::string_view leaf) {
    leaf.remove_suffix(std::min(leaf.size(), std::string_view(".weight").size()));
    return leaf.substr(leaf.rfind('.') + 1);
}

}  // namespace

void BenchAdapters::add_to(const Command& command) {
    const Flag lora = command
                          .add_option("--lora_r", rank,
                                      "train adapters of this rank (LoRA), the model's weights frozen; "
                                      "0: train the model")
                          .between(0, 1 << 16);
    command
        .add_option("--lora_target_modules", target_modules,
                    "which matrices have an adapter: all-linear, or names such as q_proj,v_proj")
        .needs(lora);
    command.add_option("--lora_dropout", dropout, "share of the adapters' inputs that is dropped")
        .within(0.0, 0.99)
        .needs(lora);
    command
        .add_flag("--lora_compare", compare,
                  "also measure steps that train the whole model, and steps that train a single norm: what "
                  "a step with adapters takes beyond these is LoRA's own cost")
        .needs(lora);
}

Adapters BenchAdapters::of(const ModelConfig& config) const {
    Adapters adapters{.weights = {}, .trained_leaves = {}, .dropout = dropout};
    if (rank == 0 && (compare || dropout > 0 || target_modules != "all-linear"))
        throw UsageError("--lora_r is 0, and another flag of adapters is given.",
                         "Use --lora_r 16, for example, or leave the other flags out.");
    if (rank == 0) return adapters;
    if (config.has_experts())
        throw UsageError("--lora_r is given, and the model has experts.", "Use a dense model.");
    const std::vector<std::string> names = split_words(target_modules, ',');
    const bool all = target_modules == "all-linear";
    make_param_spec(config).for_each_leaf([&](const LeafSpec& leaf) {
        if (!leaf.name.starts_with("model.layers.") || leaf.shape.rank() != 2) return;
        if (all || std::find(names.begin(), names.end(), module_of(leaf.name)) != names.end())
            adapters.weights.push_back({.leaf = leaf.name, .rank = rank, .scale = 2});
    });
    if (adapters.weights.empty())
        throw UsageError(fmt::format("--lora_target_modules is \"{}\".", target_modules),
                         "Name matrices of the model's blocks, such as q_proj,v_proj, or all-linear.");
    return adapters;
}

Adapters BenchAdapters::next_to_nothing() {
    return {.weights = {}, .trained_leaves = {"model.layers.0.input_layernorm.weight"}};
}

}  // namespace drover
