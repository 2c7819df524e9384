#pragma once

#include "train/engine/loss_scaling.h"

namespace drover {

/// Dynamic loss scaling, as in torch.amp.GradScaler: scales up fp16 gradients that would underflow, and finds
/// the factor by trial. Numbers are kept in fp32, as in torch.
class LossScaler {
  public:
    LossScaler() = default;
    explicit LossScaler(const LossScaling& settings) : settings_(settings), scale_(settings.initial) {}

    float scale() const { return scale_; }
    /// Steps with finite gradients since the scale last changed.
    int good_steps() const { return good_steps_; }

    /// Resumes from a state that scale() and good_steps() returned.
    void restore(float scale, int good_steps);

    /// Called after each step with whether its gradients were finite. The scale does not grow beyond fp32's
    /// range.
    void update(bool gradients_finite);

  private:
    LossScaling settings_;
    float scale_ = settings_.initial;
    int good_steps_ = 0;
};

}  // namespace drover
