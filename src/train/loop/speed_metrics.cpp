#include "train/loop/speed_metrics.h"

#include <string>

#include "core/python_text.h"

namespace drover {

void add_speed_metrics(Json& metrics, std::string_view split, double seconds, const WorkDone& work) {
    const std::string prefix(split);
    metrics[prefix + "_runtime"] = python_round(seconds, 4);
    if (seconds == 0) return;
    const auto add_rate = [&](const char* name, const std::optional<double>& amount) {
        if (amount) metrics[prefix + name] = python_round(*amount / seconds, 3);
    };
    add_rate("_samples_per_second", work.samples);
    add_rate("_steps_per_second", work.steps);
    add_rate("_tokens_per_second", work.tokens);
}

}  // namespace drover
