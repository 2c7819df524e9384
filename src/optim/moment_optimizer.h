#pragma once

#include "optim/optimizers.h"

namespace drover {

/// An optimizer that keeps at most one number per element; subclasses supply the operation.
class MomentOptimizer : public Optimizer {
  public:
    void plan(Arena& state, Arena& scratch, const ParamStore& store) override;
    void set_scalars(std::span<float> scalars, std::int64_t step) const override;
    Tensor master(std::size_t owned_leaf) const override { return leaves_[owned_leaf].master; }
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
    std::span<const OwnedLeaf> owned_;
    std::vector<MomentLeaf> leaves_;
};

}  // namespace drover
