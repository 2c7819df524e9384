#include "train/callbacks/early_stop.h"

#include <fmt/format.h>

#include <cmath>

#include "train/state/agreed_error.h"
#include "train/state/learning_rate.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

constexpr const char* exported_name = "EarlyStoppingCallback";

}  // namespace

void EarlyStop::on_evaluate(TrainerView& view, const Json& metrics) {
    const double value = best_model_metric(view.settings, metrics);
    const std::optional<double>& best = view.state.best_metric;  // this evaluation is not in it yet
    const bool better =
        !best || ((view.settings.greater_metric_is_better() ? value > *best : value < *best) &&
                  std::abs(value - *best) > threshold_);
    without_improvement_ = better ? 0 : without_improvement_ + 1;
    if (without_improvement_ >= patience_) view.control.should_training_stop = true;
}

std::optional<std::pair<std::string, Json>> EarlyStop::exported_state() const {
    const Json arguments = {{"early_stopping_patience", patience_}, {"early_stopping_threshold", threshold_}};
    const Json attributes = {{"early_stopping_patience_counter", without_improvement_}};
    return std::pair<std::string, Json>(exported_name, {{"args", arguments}, {"attributes", attributes}});
}

void EarlyStop::import_state(const Json& states) {
    constexpr const char* attributes = "attributes";
    constexpr const char* counter = "early_stopping_patience_counter";
    if (!states.contains(exported_name)) return;
    const Json& state = states.at(exported_name);
    if (!state.contains(attributes) || !state.at(attributes).contains(counter)) return;
    const Json& count = state.at(attributes).at(counter);
    // Every rank reads the same file.
    if (!count.is_number_integer() || count.get<std::int64_t>() < 0)
        throw AgreedError(fmt::format("The trainer_state.json of the checkpoint has {} as {} of {}, which is "
                                      "not a count.",
                                      count.dump(), counter, exported_name),
                          "Resume from another checkpoint.");
    without_improvement_ = count.get<std::int64_t>();
}

}  // namespace drover
