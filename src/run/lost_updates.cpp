#include "run/lost_updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/engine/train_engine.h"

namespace drover {

double share_left_unchanged(std::span<const float> weights, double change) {
    constexpr int fraction_bits = 7;
    if (weights.empty()) return 0;
    const auto unchanged = std::count_if(weights.begin(), weights.end(), [&](float weight) {
        if (weight == 0 || !std::isfinite(weight)) return false;
        const double distance = std::ldexp(1.0, std::ilogb(weight) - fraction_bits);
        return change < distance / 2;
    });
    return static_cast<double>(unchanged) / static_cast<double>(weights.size());
}

double first_update(const OptimizerSettings& optimizer, double learning_rate) {
    // RMSprop's mean of squares starts at zero, without bias correction.
    return optimizer.name == "rmsprop" ? learning_rate / std::sqrt(1 - optimizer.rmsprop.alpha)
                                       : learning_rate;
}

std::string lost_updates_warning(const TrainEngine& engine, const TrainEngineOptions& options,
                                 double learning_rate) {
    constexpr std::int64_t enough = 1 << 16;
    const Precision& precision = options.model.precision;
    if (options.model.adapters.any()) return {};  // they have a float32 copy
    if (precision.parameters != DType::bf16 || precision.master || precision.stochastic_rounding) return {};
    const WeightSample sample = engine.sample_weights(enough);
    const double update = first_update(options.optimizer, learning_rate);
    const double share = share_left_unchanged(sample.values, update);
    if (share <= 0.5 || learning_rate <= 0) return {};
    return fmt::format(
        "WARNING: most updates will be lost. The weights are bfloat16 without a float32 copy, and at the "
        "highest learning rate, {:g}, the first update is too small to change {:.0f} % of {}. Add "
        "--master_weights yes (a float32 copy of the weights, which needs more memory) or "
        "--stochastic_rounding (no more memory).",
        learning_rate, 100 * share, sample.leaf);
}

}  // namespace drover
