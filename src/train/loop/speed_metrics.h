#pragma once

#include <optional>
#include <string_view>

#include "core/json.h"

namespace drover {

/// What was done in a stretch of time; what is absent is not reported.
struct WorkDone {
    std::optional<double> samples{};
    std::optional<double> steps{};
    std::optional<double> tokens{};
};

/// Adds `<split>_runtime`, `<split>_samples_per_second` and so on, rounded as Hugging Face rounds them.
void add_speed_metrics(Json& metrics, std::string_view split, double seconds, const WorkDone& work);

}  // namespace drover
