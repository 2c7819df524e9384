#pragma once

#include "optim/optimizer.h"

/// The optimizers that make_optimizer() chooses from.
namespace drover {

/// Common arguments of all optimizers.
struct OptimizerContext {
    Precision precision;
    std::uint64_t rounding_seed;
    const Mesh& mesh;

    UpdateRounding rounding() const {
        return {.stochastic = precision.stochastic_rounding, .seed = rounding_seed};
    }
};

std::unique_ptr<Optimizer> make_adamw(const AdamWSettings& settings, const OptimizerContext& context);
std::unique_ptr<Optimizer> make_adafactor(const AdafactorSettings& settings, const OptimizerContext& context);
std::unique_ptr<Optimizer> make_sgd(const SgdSettings& settings, const OptimizerContext& context);
std::unique_ptr<Optimizer> make_adagrad(const AdagradSettings& settings, const OptimizerContext& context);
std::unique_ptr<Optimizer> make_rmsprop(const RmspropSettings& settings, const OptimizerContext& context);

/// Position of an owned part in its leaf, for rounding noise.
LeafPlace noise_place(const OwnedLeaf& leaf);

/// The weight decay that a leaf takes.
inline float decay_of(const OwnedLeaf& leaf, double weight_decay) {
    return leaf.spec->decayed ? static_cast<float>(weight_decay) : 0.0f;
}

/// A master copy of a leaf, absent where the precision has none.
inline Tensor make_master(Arena& arena, const Precision& precision, const OwnedLeaf& leaf) {
    return precision.master ? arena.make(MemoryUse::master, DType::f32, leaf.param.shape()) : Tensor();
}

}  // namespace drover
