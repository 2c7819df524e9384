#include "train/engine/loss_scaler.h"

#include <cmath>

namespace drover {

void LossScaler::restore(float scale, int good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
}

void LossScaler::update(bool gradients_finite) {
    if (!gradients_finite) {
        scale_ *= settings_.backoff;
        good_steps_ = 0;
    } else if (++good_steps_ == settings_.growth_interval) {
        if (std::isfinite(scale_ * settings_.growth)) scale_ *= settings_.growth;
        good_steps_ = 0;
    }
}

}  // namespace drover
