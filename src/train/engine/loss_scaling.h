#pragma once

namespace drover {

/// How a LossScaler finds its factor.
struct LossScaling {
    float initial = 65536;
    float growth = 2;
    float backoff = 0.5f;
    int growth_interval = 2000;  ///< steps with finite gradients before the scale grows
};

}  // namespace drover
