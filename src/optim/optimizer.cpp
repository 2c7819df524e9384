#include <fmt/format.h>

#include <array>

#include "core/counter_rng.h"
#include "core/error.h"
#include "optim/optimizers.h"

namespace drover {
namespace {

using Make = std::unique_ptr<Optimizer> (*)(const OptimizerSettings&, const OptimizerContext&);

struct NamedOptimizer {
    std::string_view name;
    Make make;
};

constexpr Make adamw = [](const OptimizerSettings& settings, const OptimizerContext& context) {
    return make_adamw(settings.adamw, context);
};

/// PyTorch's implementations of AdamW differ only in speed.
constexpr std::array known_optimizers = {
    NamedOptimizer{"adamw_torch", adamw},
    NamedOptimizer{"adamw_torch_fused", adamw},
    NamedOptimizer{"adamw_torch_xla", adamw},
    NamedOptimizer{"adamw_apex_fused", adamw},
    NamedOptimizer{"adafactor",
                   [](const OptimizerSettings& settings, const OptimizerContext& context) {
                       return make_adafactor(settings.adafactor, context);
                   }},
    NamedOptimizer{"sgd", [](const OptimizerSettings& settings,
                             const OptimizerContext& context) { return make_sgd(settings.sgd, context); }},
    NamedOptimizer{"adagrad",
                   [](const OptimizerSettings& settings, const OptimizerContext& context) {
                       return make_adagrad(settings.adagrad, context);
                   }},
    NamedOptimizer{"rmsprop",
                   [](const OptimizerSettings& settings, const OptimizerContext& context) {
                       return make_rmsprop(settings.rmsprop, context);
                   }},
};

std::string known_names() {
    std::string names;
    for (std::size_t i = 0; i < known_optimizers.size(); ++i)
        names += fmt::format("{}{}",
                             i == 0                            ? ""
                             : i + 1 < known_optimizers.size() ? ", "
                                                               : " or ",
                             known_optimizers[i].name);
    return names;
}

}  // namespace

OptimizerSettings OptimizerSettings::named(std::string name, double weight_decay) {
    return {.name = std::move(name),
            .adamw = {.weight_decay = weight_decay},
            .adafactor = {.weight_decay = weight_decay},
            .sgd = {.weight_decay = weight_decay},
            .adagrad = {.weight_decay = weight_decay},
            .rmsprop = {.weight_decay = weight_decay}};
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings, const Precision& precision,
                                          const Mesh& mesh) {
    if (precision.stochastic_rounding && (precision.parameters != DType::bf16 || precision.master))
        throw UsageError(
            "Stochastic rounding was requested, but the parameters are not bfloat16 or have a master copy.",
            "Train with bfloat16 parameters and no master copy, or without stochastic rounding.");
    for (const NamedOptimizer& known : known_optimizers)
        if (known.name == settings.name)
            return known.make(
                settings, {.precision = precision, .rounding_seed = settings.rounding_seed, .mesh = mesh});
    throw UsageError(fmt::format("--optim is \"{}\", which is not known.", settings.name),
                     fmt::format("Use {}.", known_names()));
}

LeafPlace noise_place(const OwnedLeaf& leaf) {
    return {.leaf = leaf_hash(leaf.spec->name),
            .row_begin = leaf.row_begin,
            .column_begin = leaf.column_begin,
            .columns = leaf.spec->shape.numel() / leaf.spec->shape[0]};
}

}  // namespace drover
