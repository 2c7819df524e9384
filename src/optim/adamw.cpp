#include <cmath>

#include "optim/optimizer.h"

namespace drover {
namespace {

class AdamWOptimizer final : public Optimizer {
  public:
    AdamWOptimizer(const AdamWSettings& settings, const Precision& precision)
        : settings_(settings), precision_(precision) {}

    void plan(Arena& arena, const ParamStore& store) override {
        owned_ = store.owned();
        leaves_.clear();
        for (const OwnedLeaf& leaf : owned_) {
            const Shape shape = leaf.param.shape();
            AdamWLeaf state{.param = leaf.param,
                            .gradient = leaf.gradient,
                            .exp_avg = arena.make(MemoryUse::moments, precision_.moments, shape),
                            .exp_avg_sq = arena.make(MemoryUse::moments, precision_.moments, shape),
                            .weight_decay =
                                leaf.spec->decayed ? static_cast<float>(settings_.weight_decay) : 0.0f};
            if (precision_.master) state.master = arena.make(MemoryUse::master, DType::f32, shape);
            leaves_.push_back(state);
        }
    }

    void set_scalars(std::span<float> scalars, std::int64_t step) const override {
        const auto t = static_cast<double>(step);
        scalars[StepScalar::bias_correction1] = static_cast<float>(1 - std::pow(settings_.beta1, t));
        scalars[StepScalar::bias_correction2] = static_cast<float>(1 - std::pow(settings_.beta2, t));
    }

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        backend.run(stream, AdamW{.leaves = leaves_,
                                  .scalars = scalars,
                                  .beta1 = static_cast<float>(settings_.beta1),
                                  .beta2 = static_cast<float>(settings_.beta2),
                                  .eps = static_cast<float>(settings_.eps)});
    }

    Tensor master(std::size_t owned_leaf) const override { return leaves_[owned_leaf].master; }

    std::vector<OptimizerState> state() const override {
        std::vector<OptimizerState> tensors;
        for (std::size_t i = 0; i < leaves_.size(); ++i) {
            const std::string& name = owned_[i].spec->name;
            tensors.push_back({"exp_avg/" + name, &owned_[i], leaves_[i].exp_avg});
            tensors.push_back({"exp_avg_sq/" + name, &owned_[i], leaves_[i].exp_avg_sq});
            if (leaves_[i].master) tensors.push_back({"master/" + name, &owned_[i], leaves_[i].master});
        }
        return tensors;
    }

  private:
    AdamWSettings settings_;
    Precision precision_;
    std::span<const OwnedLeaf> owned_;
    std::vector<AdamWLeaf> leaves_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWSettings& settings, const Precision& precision) {
    return std::make_unique<AdamWOptimizer>(settings, precision);
}

}  // namespace drover
