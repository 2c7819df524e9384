#include "peft/target_modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "core/error.h"
#include "model/config.h"
#include "model/params.h"
#include "peft/name_pattern.h"

namespace drover {
namespace {

constexpr std::string_view all_linear = "all-linear";
std::string module_of(std::string_view leaf) {
    return std::string(leaf.substr(0, leaf.rfind('.')));
}

std::string_view last_part(std::string_view name) {
    return name.substr(name.rfind('.') + 1);
}

bool is_named(std::string_view name, std::string_view target) {
    return name == target || (name.size() > target.size() && name.ends_with(target) &&
                              name[name.size() - target.size() - 1] == '.');
}

bool is_all_linear(const ModuleSelection& selection) {
    const auto* const text = std::get_if<std::string>(&selection);
    return text != nullptr && std::ranges::equal(*text, all_linear, {}, [](char letter) {
               return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
           });
}

/// A selection, ready to be compared with many names.
class ModuleMatcher {
  public:
    ModuleMatcher(const ModuleSelection& selection, const std::string& where) {
        if (const auto* const text = std::get_if<std::string>(&selection))
            pattern_.emplace_back(*text, where);
        if (const auto* const list = std::get_if<std::vector<std::string>>(&selection)) names_ = *list;
    }

    bool matches(std::string_view name) const {
        return (!pattern_.empty() && pattern_.front().matches(name)) ||
               std::ranges::any_of(names_, [&](const std::string& target) { return is_named(name, target); });
    }
    /// The name itself, not only its end, is in the list.
    bool lists(const std::string& name) const { return std::ranges::count(names_, name) > 0; }

  private:
    std::vector<NamePattern> pattern_;  // one or none
    std::vector<std::string> names_;
};

/// The value for a name: that of the first key that matches its end.
template <class Number>
class PatternValues {
  public:
    PatternValues(const std::vector<std::pair<std::string, Number>>& patterns, Number otherwise,
                  const std::string& where)
        : otherwise_(otherwise) {
        for (const auto& [key, value] : patterns)
            patterns_.emplace_back(NamePattern(fmt::format("(?:.*\\.)?(?:{})", key), where), value);
    }

    Number of(std::string_view name) const {
        for (const auto& [pattern, value] : patterns_)
            if (pattern.matches(name)) return value;
        return otherwise_;
    }

  private:
    std::vector<std::pair<NamePattern, Number>> patterns_;
    Number otherwise_;
};

/// Says of each module what a configuration wants with it.
class TargetRules {
  public:
    TargetRules(const PeftConfig& config, const std::string& where)
        : layers_(config.layers),
          everything_(is_all_linear(config.targets)),
          excluded_(config.excluded, where + ": exclude_modules"),
          targets_(everything_ ? ModuleSelection{} : targets_of(config), where + ": target_modules"),
          ranks_(config.ranks, config.rank, where + ": rank_pattern"),
          alphas_(config.alphas, config.alpha, where + ": alpha_pattern"),
          rank_stabilized_(config.rank_stabilized) {
        for (const std::string& name : config.modules_to_save)
            saved_.emplace_back(fmt::format("(?:^|.*\\.){}(?:$|\\..*)", name), where + ": modules_to_save");
        // The first number behind a part of the name is the layer's; an expert's comes later.
        if (layers_ && config.layers_patterns.empty())
            layer_numbers_.emplace_back(".*?\\.[^.]*\\.\\K\\d+(?=\\.)", where);
        for (const std::string& pattern : config.layers_patterns)
            layer_numbers_.emplace_back(fmt::format("(?:^|.*?\\.){}\\.\\K\\d+(?=\\.)", pattern),
                                        where + ": layers_pattern");
    }

    bool adapts(const ModelModule& module) const {
        const std::string& name = module.name;
        if (excluded_.matches(name)) return false;
        if (std::ranges::any_of(saved_, [&](const NamePattern& saved) { return saved.matches(name); }))
            return false;
        if (everything_) return module.kind == ModelModule::Kind::linear && !module.is_head;
        if (!targets_.matches(name)) return false;
        return !layers_ || targets_.lists(name) || is_wanted_layer(name);
    }

    std::int64_t rank(std::string_view name) const { return ranks_.of(name); }
    double scale(std::string_view name) const {
        const auto rank = static_cast<double>(ranks_.of(name));
        return alphas_.of(name) / (rank_stabilized_ ? std::sqrt(rank) : rank);
    }

  private:
    /// The default of PEFT is the same for every type of model that is known here.
    static ModuleSelection targets_of(const PeftConfig& config) {
        if (std::holds_alternative<std::monostate>(config.targets))
            return std::vector<std::string>{"q_proj", "v_proj"};
        return config.targets;
    }

    bool is_wanted_layer(std::string_view name) const {
        for (const NamePattern& numbers : layer_numbers_) {
            const std::string_view digits = numbers.found_in(name);
            if (digits.empty()) continue;
            std::int64_t layer = -1;
            std::from_chars(digits.data(), digits.data() + digits.size(), layer);
            return std::ranges::count(*layers_, layer) > 0;
        }
        return false;
    }

    std::optional<std::vector<std::int64_t>> layers_;
    bool everything_;
    ModuleMatcher excluded_, targets_;
    std::vector<NamePattern> saved_, layer_numbers_;
    PatternValues<std::int64_t> ranks_;
    PatternValues<double> alphas_;
    bool rank_stabilized_;
};

/// transformers has a module for the head in any case.
ModelConfig with_own_head(ModelConfig config) {
    config.separate_head();
    return config;
}

std::map<std::string, Shape> shapes_of_leaves(const ModelConfig& config) {
    std::map<std::string, Shape> shapes;
    make_param_spec(with_own_head(config)).for_each_leaf([&](const LeafSpec& leaf) {
        shapes.emplace(leaf.name, leaf.shape);
    });
    return shapes;
}

/// The last parts of the names of the linear layers there are.
std::vector<std::string> linear_names(const std::vector<ModelModule>& modules) {
    std::vector<std::string> names;
    for (const ModelModule& module : modules)
        if (module.kind == ModelModule::Kind::linear &&
            std::ranges::count(names, last_part(module.name)) == 0)
            names.emplace_back(last_part(module.name));
    return names;
}

[[noreturn]] void fail_without_match(const PeftConfig& config, const std::vector<ModelModule>& modules,
                                     std::string_view where) {
    const std::vector<std::string> names = linear_names(modules);
    const auto* const text = std::get_if<std::string>(&config.targets);
    std::string remedy = fmt::format("There are {}.", fmt::join(names, ", "));
    if (text != nullptr && std::ranges::count(names, *text) > 0)
        remedy = fmt::format(
            "A single text is a regular expression for the whole name, such as .*\\.{}; several names, or "
            "a list in a file, are endings.",
            *text);
    else if (text != nullptr && text->find(',') != std::string::npos)
        remedy = fmt::format("Several names are separated by spaces, not commas. {}", remedy);
    throw Error(
        fmt::format("{}: target_modules {} no module of the model{}.", where,
                    text != nullptr ? fmt::format("\"{}\" matches", *text)
                                    : fmt::format("{} name", config.values.at("target_modules").dump()),
                    config.layers ? fmt::format(" in the layers {}", fmt::join(*config.layers, ", ")) : ""),
        remedy);
}

void check_adaptable(const ModelModule& module, const PeftConfig& config, std::string_view where) {
    const bool is_embedding = module.kind == ModelModule::Kind::embedding;
    if (is_embedding && config.magnitudes)
        throw Error(fmt::format("{}: use_dora is given, and target_modules matches the embedding {}, for "
                                "which there is no DoRA here.",
                                where, module.name),
                    "Use LoRA, leave the embedding out, or train it whole with modules_to_save.");
    if (module.kind != ModelModule::Kind::linear && !is_embedding)
        throw Error(fmt::format("{}: target_modules matches {}, which is neither a linear layer nor an "
                                "embedding.",
                                where, module.name),
                    "Only these can be adapted: name some.");
}

/// The leaves of the modules that are trained whole.
std::vector<std::string> saved_leaves(const PeftConfig& config, const std::vector<ModelModule>& modules,
                                      const ModelConfig& model, std::string_view where) {
    if (config.modules_to_save.empty()) return {};
    std::set<std::string> saved;
    for (const ModelModule& module : modules) {
        // PEFT compares endings without looking for a dot.
        const auto wanted = [&](const std::string& name) { return module.name.ends_with(name); };
        if (!std::ranges::any_of(config.modules_to_save, wanted)) continue;
        saved.insert(module.name);
    }
    if (saved.empty())
        throw Error(fmt::format("{}: modules_to_save {} name no module of the model.", where,
                                config.values.at("modules_to_save").dump()),
                    "Name for example embed_tokens, lm_head or norm.");
    std::vector<std::string> leaves;
    for (std::string& leaf : names_in_module_order(with_own_head(model))) {
        // Its module, or one that holds it.
        for (std::string name = module_of(leaf);; name = module_of(name)) {
            if (saved.contains(name)) {
                leaves.push_back(std::move(leaf));
                break;
            }
            if (name.find('.') == std::string::npos) break;
        }
    }
    return leaves;
}

/// Where transformers 5.x has a Mixtral block's experts and router.
std::string fused_module(std::string_view leaf_module) {
    constexpr std::string_view published = "block_sparse_moe";
    std::string name(leaf_module);
    if (const auto at = name.find(published); at != std::string::npos)
        name.replace(at, published.size(), "mlp");
    return name;
}

/// target_parameters: weights of linear layers, or of fused experts.
void add_target_parameters(const PeftConfig& config, const std::vector<ModelModule>& modules,
                           const ModelConfig& model, const TargetRules& rules, std::string_view where,
                           ResolvedAdapter& result) {
    if (config.target_parameters.empty()) return;
    const auto is_target = [&](const std::string& parameter) {
        return std::ranges::any_of(config.target_parameters,
                                   [&](const std::string& target) { return is_named(parameter, target); });
    };
    std::size_t found = 0;
    for (const ModelModule& module : modules) {
        if (module.kind != ModelModule::Kind::linear) continue;
        const std::string leaf = module.name + ".weight", fused = fused_module(module.name) + ".weight";
        // An expert has no name of its own in transformers 5.x.
        if (module.name.find(".experts.") != std::string::npos) continue;
        if (!is_target(leaf) && !is_target(fused)) continue;
        check_adaptable(module, config, where);
        result.adapters.weights.push_back({leaf, rules.rank(fused), rules.scale(fused)});
        ++found;
    }
    for (std::int64_t i = 0; model.has_experts() && i < model.num_hidden_layers; ++i) {
        const std::string module = fmt::format("model.layers.{}.mlp.experts", i);
        const std::string leaves = fmt::format("model.layers.{}.block_sparse_moe.experts.", i);
        using Weight = FusedExpertsAdapter::Weight;
        for (const auto& [name, weight] :
             {std::pair{".gate_up_proj", Weight::gate_up}, std::pair{".down_proj", Weight::down}}) {
            if (!is_target(module + name)) continue;
            result.fused.push_back(
                {module, leaves, weight, rules.rank(module + name), rules.scale(module + name)});
            ++found;
        }
    }
    if (found == 0)
        throw Error(fmt::format("{}: target_parameters {} name no weight of the model.", where,
                                config.values.at("target_parameters").dump()),
                    model.has_experts()
                        ? "Fused experts have gate_up_proj and down_proj, the router gate.weight."
                        : "Use target_modules.");
    if (config.magnitudes)
        throw Error(fmt::format("{}: use_dora is given with target_parameters.", where),
                    "DoRA is for modules only: use target_modules.");
}

void sort_by_module(const std::vector<ModelModule>& modules, std::vector<AdaptedWeight>& weights) {
    std::map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < modules.size(); ++i) places.emplace(modules[i].name + ".weight", i);
    std::ranges::sort(weights, {}, [&](const AdaptedWeight& weight) { return places.at(weight.leaf); });
    const auto twice = std::ranges::adjacent_find(weights, {}, &AdaptedWeight::leaf);
    if (twice != weights.end())
        throw Error(fmt::format("{} is named by target_modules and target_parameters.", twice->leaf),
                    "Name it once.");
}

}  // namespace

std::vector<ModelModule> modules_of(const ModelConfig& config) {
    const std::map<std::string, Shape> shapes = shapes_of_leaves(config);
    std::vector<ModelModule> modules;
    std::set<std::string> known;
    const auto add_containers = [&](const std::string& name) {
        for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
            if (known.insert(name.substr(0, dot)).second) modules.push_back({.name = name.substr(0, dot)});
    };
    for (const std::string& leaf : names_in_module_order(with_own_head(config))) {
        if (!leaf.ends_with(".weight")) continue;
        const std::string name = module_of(leaf);
        const Shape& shape = shapes.at(leaf);
        add_containers(name);
        known.insert(name);
        modules.push_back({.name = name,
                           .kind = leaf == embedding_leaf ? ModelModule::Kind::embedding
                                   : shape.rank() == 1    ? ModelModule::Kind::norm
                                                          : ModelModule::Kind::linear,
                           .is_head = leaf == head_leaf});
    }
    return modules;
}

ResolvedAdapter resolve_adapter(const PeftConfig& config, const ModelConfig& model, std::string_view where) {
    const std::vector<ModelModule> modules = modules_of(model);
    const TargetRules rules(config, std::string(where));
    ResolvedAdapter result{.is_shorthand = std::holds_alternative<std::monostate>(config.targets) ||
                                           is_all_linear(config.targets)};
    for (const ModelModule& module : modules) {
        if (!rules.adapts(module)) continue;
        check_adaptable(module, config, where);
        result.adapters.weights.push_back(
            {module.name + ".weight", rules.rank(module.name), rules.scale(module.name)});
        if (std::ranges::count(result.target_names, last_part(module.name)) == 0)
            result.target_names.emplace_back(last_part(module.name));
    }
    add_target_parameters(config, modules, model, rules, where, result);
    sort_by_module(modules, result.adapters.weights);
    if (result.adapters.weights.empty() && result.fused.empty()) fail_without_match(config, modules, where);
    result.adapters.trained_leaves = saved_leaves(config, modules, model, where);
    result.adapters.dropout = config.dropout;
    result.adapters.magnitudes = config.magnitudes;
    return result;
}

Adapters resolve(const PeftConfig& config, const ModelConfig& model, std::string_view where) {
    ResolvedAdapter resolved = resolve_adapter(config, model, where);
    if (!resolved.fused.empty())
        throw Error(
            fmt::format("{}: target_parameters adapt fused experts, which cannot be trained here.", where),
            "Such an adapter can be used and merged; to train experts, name w1, w2 and w3 in "
            "target_modules.");
    return std::move(resolved.adapters);
}

TrainedCounts count_trained(const Adapters& adapters, const ModelConfig& model) {
    const std::map<std::string, Shape> shapes = shapes_of_leaves(model);
    TrainedCounts counts{.all = make_param_spec(model).parameter_count()};
    // PEFT does not count a head twice that starts as the embedding.
    if (model.head_from_embedding) counts.all -= model.vocab_size * model.hidden_size;
    for (const AdaptedWeight& weight : adapters.weights) {
        const Shape& shape = shapes.at(weight.leaf);
        counts.trained += weight.rank * (shape[0] + shape[1]) + (adapters.magnitudes ? shape[0] : 0);
    }
    for (const std::string& leaf : adapters.trained_leaves) counts.trained += shapes.at(leaf).numel();
    counts.all += counts.trained;
    return counts;
}

}  // namespace drover
