#include "train/engine/pipeline_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/planning_backend.h"
#include "model/params.h"
#include "parallel/mesh_cases.h"
#include "parallel/mesh_of_nobody.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

using Kind = PipelineScheduleKind;
using Action = PipelineActionKind;

/// Follows a rank's actions through the buffers of its plan: a slot and a batch's buffer belong to one
/// micro-batch at a time, and messages find room.
void expect_room(const PipelinePlan& plan, const std::vector<PipelineAction>& actions,
                 const std::string& what) {
    std::map<std::pair<int, int>, int> slots;  // (chunk, slot) → the micro-batch in it
    std::map<int, int> left;                   // computations of each micro-batch
    int begun = 0, activations = 0, gradients = 0;
    const int last_stage = plan.ranks() * plan.chunks() - 1;
    for (const PipelineAction& action : actions)
        if (is_computation(action.kind)) ++left[action.micro_batch];
    const bool trains = std::any_of(actions.begin(), actions.end(), [](const PipelineAction& action) {
        return action.kind == Action::backward || action.kind == Action::backward_input;
    });
    for (const PipelineAction& action : actions) {
        activations += action.kind == Action::receive_activations;
        gradients += action.kind == Action::receive_gradients;
        ASSERT_LE(activations, plan.unread_activations()) << what;
        ASSERT_LE(gradients, plan.unread_gradients()) << what;
        if (!is_computation(action.kind)) continue;
        const int chunk = action.stage / plan.ranks();
        const std::pair slot{chunk, action.micro_batch % plan.slots(chunk)};
        if (action.kind == Action::forward) {
            activations -= action.stage > 0;
            ASSERT_TRUE(slots.try_emplace(slot, action.micro_batch).second)
                << what << ": micro-batches " << slots[slot] << " and " << action.micro_batch
                << " share a slot of chunk " << chunk;
            if (action.micro_batch == begun) {
                // Its buffer was that of micro-batch begun − batches().
                EXPECT_TRUE(begun < plan.batches() || left[begun - plan.batches()] == 0) << what;
                ++begun;
            }
            ASSERT_LT(action.micro_batch, begun) << what << ": they begin in another order";
        } else {
            ASSERT_EQ(slots[slot], action.micro_batch) << what;
        }
        if (action.kind == Action::backward || action.kind == Action::backward_input)
            gradients -= action.stage < last_stage;
        const bool ends = action.kind == Action::backward || action.kind == Action::backward_weight ||
                          (!trains && action.kind == Action::forward);
        if (ends) slots.erase(slot);
        --left[action.micro_batch];
    }
    EXPECT_TRUE(slots.empty()) << what;
    EXPECT_EQ(activations, 0) << what;
    EXPECT_EQ(gradients, 0) << what;
}

/// An update may have fewer micro-batches than planned.
TEST(PipelinePlan, HasRoomForEveryNumberOfMicroBatches) {
    for (const int ranks : {2, 3, 4, 8})
        for (const int chunks : {1, 2, 3})
            for (const Kind kind : {Kind::one_forward_one_backward, Kind::zero_bubble})
                for (const bool weights_can_wait : {true, false})
                    for (const int planned : {1, 2, 5, 8, 9, 31, 40})
                        for (int rank = 0; rank < ranks; ++rank) {
                            if (!weights_can_wait && kind != Kind::zero_bubble) continue;
                            PipelinePlan plan({.schedule = kind, .chunks = chunks, .micro_batches = planned},
                                              ranks, rank, weights_can_wait);
                            const auto what = [&](int count) {
                                return std::string(name_of(kind, chunks)) +
                                       (weights_can_wait ? "" : ", whole") + ": rank " +
                                       std::to_string(rank) + " of " + std::to_string(ranks) + " with " +
                                       std::to_string(chunks) + " chunks, planned for " +
                                       std::to_string(planned) + ", " + std::to_string(count);
                            };
                            for (int count = 1; count <= planned; ++count)
                                expect_room(plan, plan.training(count), what(count));
                            for (int count = 1; count <= plan.most_evaluated(); ++count)
                                expect_room(plan, plan.evaluation(count), what(count) + " evaluated");
                            if (HasFatalFailure()) return;
                        }
}

TEST(PipelinePlan, DoesNotTakeMoreThanPlanned) {
    PipelinePlan plan({.micro_batches = 3}, 2, 0, true);
    EXPECT_NO_THROW(plan.training(3));
    EXPECT_DEATH(plan.training(4), "more micro-batches than planned");
}

TEST(PipelinePlan, WithoutAPipelineHasOneOfEverything) {
    PipelinePlan plan({.micro_batches = 5}, 1, 0, true);
    EXPECT_EQ(plan.slots(0), 1);
    EXPECT_EQ(plan.batches(), 1);
    EXPECT_EQ(plan.unread_activations(), 0);
    EXPECT_FALSE(plan.weights_wait());
    EXPECT_EQ(plan.training(5).size(), 10u);
}

// -----------------------------------------------------------------------------------------------------
// memory

constexpr int planned_stages = 4;

/// The plans of all ranks of a pipeline, for 8 layers and 8 micro-batches.
std::vector<MemoryPlan> stage_plans(const test::MeshModel& model, Kind kind,
                                    Recompute recompute = Recompute::none, int micro_batches = 8) {
    std::vector<MemoryPlan> plans;
    const auto backend = make_planning_backend(Device::cpu);
    for (int rank = 0; rank < planned_stages; ++rank) {
        const Mesh mesh = test::mesh_of_nobody({.pp = planned_stages}, rank);
        const TrainEngine engine(
            model.config,
            {.model = {.precision = Precision::fp32(), .recompute = {recompute}, .rows = 2, .row_length = 16},
             .compat = {},
             .pipeline = {.schedule = kind, .micro_batches = micro_batches}},
            *backend, mesh);
        plans.push_back(engine.memory_plan());
    }
    return plans;
}

test::MeshModel eight_layers(std::string_view name) {
    for (const test::MeshModel& model : test::pipeline_models(8))
        if (model.name == name) return model;
    bug("no such model");
}

TEST(PipelineMemory, AStageHasItsOwnWeights) {
    for (const char* name : {"grouped-query", "tied"}) {
        const test::MeshModel model = eight_layers(name);
        const std::vector<MemoryPlan> plans = stage_plans(model, Kind::one_forward_one_backward);
        const std::size_t blocks = plans[1][MemoryUse::parameters];
        const std::size_t embedding = 64 * 32 * 4, norm = Arena::alignment;  // 32 floats
        EXPECT_EQ(plans[2][MemoryUse::parameters], blocks) << name;
        EXPECT_EQ(plans[0][MemoryUse::parameters], blocks + embedding) << name;
        EXPECT_EQ(plans[3][MemoryUse::parameters], blocks + embedding + norm) << name;
        for (int rank = 0; rank < planned_stages; ++rank) {
            const MemoryPlan& plan = plans[static_cast<std::size_t>(rank)];
            EXPECT_EQ(plan[MemoryUse::gradients], plan[MemoryUse::parameters]) << name << rank;
            EXPECT_EQ(plan[MemoryUse::head] > 0, rank == 3) << name << rank;
            EXPECT_GT(plan[MemoryUse::transfers], 0u) << name << rank;
        }
    }
}

/// Rank p of 1F1B holds P − p micro-batches; with zero bubble p more wait for the gradients of their weights.
TEST(PipelineMemory, AStageHasTheSlotsOfItsSchedule) {
    const test::MeshModel model = eight_layers("grouped-query");
    const auto activations = [&](Kind kind, int micro_batches) {
        std::vector<std::size_t> result;
        for (const MemoryPlan& plan : stage_plans(model, kind, Recompute::none, micro_batches))
            result.push_back(plan[MemoryUse::attention_activations]);
        return result;
    };
    const std::size_t one = activations(Kind::one_forward_one_backward, 1)[0];
    ASSERT_GT(one, 0u);
    EXPECT_EQ(activations(Kind::one_forward_one_backward, 1), (std::vector{one, one, one, one}));
    EXPECT_EQ(activations(Kind::one_forward_one_backward, 2), (std::vector{2 * one, 2 * one, 2 * one, one}));
    EXPECT_EQ(activations(Kind::one_forward_one_backward, 8), (std::vector{4 * one, 3 * one, 2 * one, one}));
    EXPECT_EQ(activations(Kind::zero_bubble, 8), (std::vector{4 * one, 4 * one, 4 * one, 4 * one}));
}

TEST(PipelineMemory, ShowsGradientsThatWait) {
    const test::MeshModel model = eight_layers("grouped-query");
    const auto waiting = [&](Kind kind, Recompute recompute) {
        std::set<bool> result;
        for (const MemoryPlan& plan : stage_plans(model, kind, recompute))
            result.insert(plan[MemoryUse::waiting_gradients] > 0);
        return result;
    };
    EXPECT_EQ(waiting(Kind::zero_bubble, Recompute::none), std::set<bool>{true});
    EXPECT_EQ(waiting(Kind::one_forward_one_backward, Recompute::none), std::set<bool>{false});
    EXPECT_EQ(waiting(Kind::zero_bubble, Recompute::full), std::set<bool>{false});
    EXPECT_EQ(waiting(Kind::zero_bubble, Recompute::selective), std::set<bool>{false});
    // What was recomputed is merged back, and takes no more room than 1F1B.
    const auto zero_bubble = stage_plans(model, Kind::zero_bubble, Recompute::full),
               plain = stage_plans(model, Kind::one_forward_one_backward, Recompute::full);
    for (std::size_t rank = 0; rank < zero_bubble.size(); ++rank)
        EXPECT_LE(zero_bubble[rank].total, plain[rank].total) << rank;
}

}  // namespace
}  // namespace drover
