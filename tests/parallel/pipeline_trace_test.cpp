#include "train/callbacks/pipeline_trace.h"
#include "train/state/trainer_settings.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "core/text_file.h"
#include "parallel/threads_run.h"
#include "support/golden.h"

namespace drover {
namespace {

using ActionKind = PipelineActionKind;

TEST(StepTimeline, CountsTheTimeInWhichRanksDoNotCompute) {
    StepTimeline step;
    step.ranks.resize(2);
    step.ranks[0] = {
        .place = {.pp = 0},
        .actions = {{{ActionKind::forward, 0, 0}, 10, 11}, {{ActionKind::backward, 0, 0}, 14, 16}}};
    step.ranks[1] = {
        .place = {.pp = 1},
        .actions = {{{ActionKind::forward, 1, 0}, 11, 12}, {{ActionKind::backward, 1, 0}, 12, 14}}};
    EXPECT_DOUBLE_EQ(step.bubble(), 0.5);  // 6 of 12 seconds
    // A second pipeline beside it, which has no bubble at all but for its own second rank.
    step.ranks.push_back({.place = {.pp = 0, .data = 1}, .actions = {{{ActionKind::forward, 0, 0}, 0, 2}}});
    step.ranks.push_back({.place = {.pp = 1, .data = 1}, .actions = {{{ActionKind::forward, 1, 0}, 0, 1}}});
    EXPECT_DOUBLE_EQ(step.bubble(), 7.0 / 16);

    const std::vector<StageTimes> times = step.stage_times(2);
    EXPECT_DOUBLE_EQ(times[0].forward, 1.5);
    EXPECT_DOUBLE_EQ(times[1].backward_input, 2);
    EXPECT_DOUBLE_EQ(times[1].backward_weight, 0);
}

/// Trains a few updates on a pipeline of threads and returns the file that the first rank wrote.
nlohmann::json traced(PipelineScheduleKind schedule, int ranks, int micro_batches) {
    const test::MeshModel model = test::pipeline_models(8)[0];
    const test::TemporaryFolder folder;
    run_as_threads(ranks, {}, [&](World& world) {
        omp_set_num_threads(1);
        const Mesh mesh(world, {.pp = ranks});
        const auto backend = make_cpu_backend();
        TrainEngine engine(
            model.config,
            {.model = {.precision = Precision::fp32(), .recompute = {}, .rows = 2, .row_length = 8},
             .compat = {},
             .pipeline = {.schedule = schedule, .micro_batches = micro_batches}},
            *backend, mesh);
        engine.allocate();
        engine.initialize_weights(1);
        PipelineTrace trace(engine, *backend, mesh, folder.path() / "timeline.json",
                            [](const std::string&) {});
        const TrainerSettings settings;
        const StepPlan plan{};
        TrainerState state;
        const ParameterCounts parameters;
        TrainerControl control;
        TrainerView view{settings, plan, state, parameters, control};
        const std::vector<Batch> batches(
            static_cast<std::size_t>(micro_batches),
            Batch::full_rows(2, 8, std::vector<std::int32_t>(16, 3), std::vector<std::int32_t>(16, 3)));
        for (int step = 0; step < 3; ++step) {
            trace.on_step_begin(view);
            engine.step(batches, 1e-3);
            ++state.global_step;
            trace.on_step_end(view, {});
        }
        trace.on_train_end(view);
    });
    return nlohmann::json::parse(read_text_file(folder.path() / "timeline.json"));
}

/// The computations of an update on one rank, in the order of their start.
std::vector<std::string> computed(const nlohmann::json& trace, int rank, int update) {
    std::vector<std::pair<double, std::string>> all;
    for (const auto& event : trace.at("traceEvents"))
        if (event.at("ph") == "X" && event.at("pid") == rank && event.at("args").at("update") == update)
            all.emplace_back(event.at("ts"), event.at("name"));
    std::sort(all.begin(), all.end());
    std::vector<std::string> names;
    for (const auto& [start, name] : all) names.push_back(name);
    return names;
}

TEST(PipelineTrace, ShowsWeightGradientsInTheCoolDownOfZeroBubble) {
    const nlohmann::json trace = traced(PipelineScheduleKind::zero_bubble, 3, 4);
    // As in docs/design/pipeline.md.
    EXPECT_EQ(computed(trace, 0, 2), (std::vector<std::string>{"0F0", "0F1", "0F2", "0I0", "0W0", "0F3",
                                                               "0I1", "0W1", "0I2", "0W2", "0I3", "0W3"}));
    EXPECT_EQ(computed(trace, 2, 3), (std::vector<std::string>{"2F0", "2I0", "2F1", "2I1", "2F2", "2I2",
                                                               "2W0", "2F3", "2I3", "2W1", "2W2", "2W3"}));
    EXPECT_TRUE(computed(trace, 0, 1).empty()) << "the first update is slower than the others";
    const double bubble = trace.at("otherData").at("measured_bubble");
    EXPECT_GT(bubble, 0);
    EXPECT_LT(bubble, 1);
}

/// All ranks are on one clock: no computation begins before what it reads is there.
TEST(PipelineTrace, NothingIsReadBeforeItIsThere) {
    const nlohmann::json trace = traced(PipelineScheduleKind::one_forward_one_backward, 2, 3);
    std::map<int, double> left;
    int arrows = 0;
    for (const auto& event : trace.at("traceEvents"))
        if (event.at("ph") == "s") left[event.at("id")] = event.at("ts");
    for (const auto& event : trace.at("traceEvents"))
        if (event.at("ph") == "f") {
            ++arrows;
            EXPECT_GE(event.at("ts").get<double>(), left.at(event.at("id")));
        }
    EXPECT_EQ(arrows, 2 * 3 * 2);  // updates, micro-batches, directions
}

}  // namespace
}  // namespace drover
