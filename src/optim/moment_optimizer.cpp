#include "optim/moment_optimizer.h"

namespace drover {

void MomentOptimizer::plan(Arena& state, Arena&, const ParamStore& store) {
    owned_ = store.owned();
    leaves_.clear();
    for (const OwnedLeaf& leaf : owned_) {
        MomentLeaf& planned = leaves_.emplace_back(MomentLeaf{.param = leaf.param,
                                                              .gradient = leaf.gradient,
                                                              .weight_decay = decay_of(leaf, weight_decay_),
                                                              .place = noise_place(leaf)});
        if (!moment_name_.empty())
            planned.moment = state.make(MemoryUse::moments, precision_.moments, leaf.param.shape());
        planned.master = make_master(state, precision_, leaf);
    }
}

void MomentOptimizer::set_scalars(std::span<float> scalars, std::int64_t step) const {
    scalars[StepScalar::step] = static_cast<float>(step);
}

std::vector<OptimizerState> MomentOptimizer::state() const {
    std::vector<OptimizerState> tensors;
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
        const std::string& name = owned_[i].spec->name;
        if (leaves_[i].moment) tensors.push_back({moment_name_ + "/" + name, &owned_[i], leaves_[i].moment});
        if (leaves_[i].master) tensors.push_back({"master/" + name, &owned_[i], leaves_[i].master});
    }
    return tensors;
}

}  // namespace drover
