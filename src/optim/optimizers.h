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

/// The owned leaves of a store that are trained.
class TrainedLeaves {
  public:
    TrainedLeaves() = default;
    explicit TrainedLeaves(std::span<const OwnedLeaf> owned) {
        for (const OwnedLeaf& leaf : owned) {
            places_.push_back(leaf.spec->trained ? leaves_.size() : none);
            if (leaf.spec->trained) leaves_.push_back(&leaf);
        }
    }

    std::size_t size() const { return leaves_.size(); }
    const OwnedLeaf& operator[](std::size_t index) const { return *leaves_[index]; }
    std::span<const OwnedLeaf* const> all() const { return leaves_; }

    /// What `planned` has for an owned leaf: its master copy, absent for a frozen leaf.
    template <class Leaf>
    Tensor master(const std::vector<Leaf>& planned, std::size_t owned_leaf) const {
        const std::size_t place = places_[owned_leaf];
        return place == none ? Tensor() : planned[place].master;
    }

  private:
    static constexpr auto none = static_cast<std::size_t>(-1);
    std::vector<const OwnedLeaf*> leaves_;
    std::vector<std::size_t> places_;  // of each owned leaf in leaves_
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
