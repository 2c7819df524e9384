#include <cmath>

#include "backend/backend.h"
#include "optim/optimizers.h"

namespace drover {
namespace {

class AdamWOptimizer final : public Optimizer {
  public:
    AdamWOptimizer(const AdamWSettings& settings, const OptimizerContext& context)
        : settings_(settings), precision_(context.precision), rounding_(context.rounding()) {}

    void plan(Arena& state, Arena&, const ParamStore& store) override {
        trained_ = TrainedLeaves(store.owned());
        leaves_.clear();
        for (const OwnedLeaf* const owned : trained_.all()) {
            const OwnedLeaf& leaf = *owned;
            const Shape shape = leaf.param.shape();
            leaves_.push_back({.param = leaf.param,
                               .gradient = leaf.gradient,
                               .exp_avg = state.make(MemoryUse::moments, precision_.moments, shape),
                               .exp_avg_sq = state.make(MemoryUse::moments, precision_.moments, shape),
                               .master = make_master(state, precision_, leaf),
                               .weight_decay = decay_of(leaf, settings_.weight_decay),
                               .place = noise_place(leaf)});
        }
    }

    void set_scalars(std::span<float> scalars, std::int64_t step) const override {
        const auto t = static_cast<double>(step);
        scalars[StepScalar::bias_correction1] = static_cast<float>(1 - std::pow(settings_.beta1, t));
        scalars[StepScalar::bias_correction2] = static_cast<float>(1 - std::pow(settings_.beta2, t));
        scalars[StepScalar::step] = static_cast<float>(step);
    }

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        if (leaves_.empty()) return;
        backend.run(stream, AdamW{.leaves = leaves_,
                                  .scalars = scalars,
                                  .beta1 = settings_.beta1,
                                  .beta2 = settings_.beta2,
                                  .eps = static_cast<float>(settings_.eps),
                                  .rounding = rounding_,
                                  .form = settings_.form});
    }

    Tensor master(std::size_t owned_leaf) const override { return trained_.master(leaves_, owned_leaf); }

    std::vector<OptimizerState> state() const override {
        std::vector<OptimizerState> tensors;
        for (std::size_t i = 0; i < leaves_.size(); ++i) {
            const std::string& name = trained_[i].spec->name;
            tensors.push_back({"exp_avg/" + name, &trained_[i], leaves_[i].exp_avg});
            tensors.push_back({"exp_avg_sq/" + name, &trained_[i], leaves_[i].exp_avg_sq});
            if (leaves_[i].master) tensors.push_back({"master/" + name, &trained_[i], leaves_[i].master});
        }
        return tensors;
    }

  private:
    AdamWSettings settings_;
    Precision precision_;
    UpdateRounding rounding_;
    TrainedLeaves trained_;
    std::vector<AdamWLeaf> leaves_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWSettings& settings, const OptimizerContext& context) {
    return std::make_unique<AdamWOptimizer>(settings, context);
}

}  // namespace drover
