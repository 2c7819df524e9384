#include "train/callbacks/early_stop.h"

#include <gtest/gtest.h>

#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// The number of evaluations after which a run with these losses stops; 0: it does not.
int stops_after(const std::vector<double>& values, std::int64_t patience, double threshold,
                bool greater_is_better = false) {
    TrainerSettings settings{.metric_for_best_model = "loss", .greater_is_better = greater_is_better};
    const StepPlan plan;
    TrainerState state;
    const ParameterCounts parameters;
    TrainerControl control;
    TrainerView view{settings, plan, state, parameters, control};
    EarlyStop stop(patience, threshold);
    int evaluations = 0;
    for (const double value : values) {
        stop.on_evaluate(view, {{"eval_loss", value}});
        ++evaluations;
        if (control.should_training_stop) return evaluations;
        const bool better = !state.best_metric ||
                            (greater_is_better ? value > *state.best_metric : value < *state.best_metric);
        if (better) state.best_metric = value;
    }
    return 0;
}

TEST(EarlyStop, CountsEvaluationsThatAreNotBetter) {
    EXPECT_EQ(stops_after({5, 4, 3, 2}, 1, 0), 0);
    EXPECT_EQ(stops_after({5, 5}, 1, 0), 2);
    EXPECT_EQ(stops_after({5, 6, 4, 4, 4}, 2, 0), 5);
    EXPECT_EQ(stops_after({1, 2, 3}, 1, 0, true), 0);
    EXPECT_EQ(stops_after({1, 2, 1}, 1, 0, true), 3);
}

TEST(EarlyStop, BetterByLessThanTheThresholdDoesNotCount) {
    EXPECT_EQ(stops_after({5, 4.75}, 1, 0.5), 2);
    EXPECT_EQ(stops_after({5, 4.5}, 1, 0.5), 2);  // the threshold itself is not enough
    EXPECT_EQ(stops_after({5, 4.25, 3.5}, 1, 0.5), 0);
    EXPECT_EQ(stops_after({5, 6}, 1, 0.5), 2);  // worse by more is no improvement
    EXPECT_EQ(stops_after({1, 1.25}, 1, 0.5, true), 2);
    EXPECT_EQ(stops_after({1, 2}, 1, 0.5, true), 0);
}

}  // namespace
}  // namespace drover
