#include "backend/backend.h"
#include "optim/optimizers.h"

/// SGD, Adagrad and RMSprop: the optimizers that keep at most one number per element.
namespace drover {
namespace {

/// An optimizer that keeps at most one number per element; subclasses supply the operation.
class MomentOptimizer : public Optimizer {
  public:
    void plan(Arena& state, Arena& scratch, const ParamStore& store) override;
    void set_scalars(std::span<float> scalars, std::int64_t step) const override;
    Tensor master(std::size_t owned_leaf) const override { return trained_.master(leaves_, owned_leaf); }
    std::vector<OptimizerState> state() const override;

  protected:
    /// `moment_name` is the moment's name in checkpoints, PyTorch's; empty when there is none.
    MomentOptimizer(std::string moment_name, double weight_decay, const OptimizerContext& context)
        : moment_name_(std::move(moment_name)),
          weight_decay_(weight_decay),
          precision_(context.precision),
          rounding_(context.rounding()) {}

    std::span<const MomentLeaf> leaves() const { return leaves_; }
    const UpdateRounding& rounding() const { return rounding_; }

  private:
    std::string moment_name_;
    double weight_decay_;
    Precision precision_;
    UpdateRounding rounding_;
    TrainedLeaves trained_;
    std::vector<MomentLeaf> leaves_;
};

void MomentOptimizer::plan(Arena& state, Arena&, const ParamStore& store) {
    trained_ = TrainedLeaves(store.owned());
    leaves_.clear();
    for (const OwnedLeaf* const owned : trained_.all()) {
        const OwnedLeaf& leaf = *owned;
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
        const std::string& name = trained_[i].spec->name;
        if (leaves_[i].moment)
            tensors.push_back({moment_name_ + "/" + name, &trained_[i], leaves_[i].moment});
        if (leaves_[i].master) tensors.push_back({"master/" + name, &trained_[i], leaves_[i].master});
    }
    return tensors;
}

class SgdOptimizer final : public MomentOptimizer {
  public:
    SgdOptimizer(const SgdSettings& settings, const OptimizerContext& context)
        : MomentOptimizer(settings.momentum == 0 ? "" : "momentum_buffer", settings.weight_decay, context),
          momentum_(static_cast<float>(settings.momentum)) {}

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        if (leaves().empty()) return;
        backend.run(
            stream,
            Sgd{.leaves = leaves(), .scalars = scalars, .momentum = momentum_, .rounding = rounding()});
    }

  private:
    float momentum_;
};

class AdagradOptimizer final : public MomentOptimizer {
  public:
    AdagradOptimizer(const AdagradSettings& settings, const OptimizerContext& context)
        : MomentOptimizer("sum", settings.weight_decay, context), eps_(static_cast<float>(settings.eps)) {}

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        if (leaves().empty()) return;
        backend.run(stream,
                    Adagrad{.leaves = leaves(), .scalars = scalars, .eps = eps_, .rounding = rounding()});
    }

  private:
    float eps_;
};

class RmspropOptimizer final : public MomentOptimizer {
  public:
    RmspropOptimizer(const RmspropSettings& settings, const OptimizerContext& context)
        : MomentOptimizer("square_avg", settings.weight_decay, context), settings_(settings) {}

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        if (leaves().empty()) return;
        backend.run(stream, Rmsprop{.leaves = leaves(),
                                    .scalars = scalars,
                                    .alpha = settings_.alpha,
                                    .eps = static_cast<float>(settings_.eps),
                                    .rounding = rounding()});
    }

  private:
    RmspropSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdSettings& settings, const OptimizerContext& context) {
    return std::make_unique<SgdOptimizer>(settings, context);
}

std::unique_ptr<Optimizer> make_adagrad(const AdagradSettings& settings, const OptimizerContext& context) {
    return std::make_unique<AdagradOptimizer>(settings, context);
}

std::unique_ptr<Optimizer> make_rmsprop(const RmspropSettings& settings, const OptimizerContext& context) {
    return std::make_unique<RmspropOptimizer>(settings, context);
}

}  // namespace drover
