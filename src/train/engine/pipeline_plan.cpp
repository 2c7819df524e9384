#include "train/engine/pipeline_plan.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/schedule/transfers.h"

namespace drover {
namespace {

/// Micro-batches that the rank has begun and not finished, at most. They begin in order.
int most_begun(const std::vector<PipelineAction>& actions, int micro_batches) {
    std::vector<int> left(static_cast<std::size_t>(micro_batches), 0);
    for (const PipelineAction& action : actions)
        if (is_computation(action.kind)) ++left[static_cast<std::size_t>(action.micro_batch)];
    int begun = 0, oldest = 0, most = 1;
    for (const PipelineAction& action : actions) {
        if (!is_computation(action.kind)) continue;
        begun = std::max(begun, action.micro_batch + 1);
        most = std::max(most, begun - oldest);
        --left[static_cast<std::size_t>(action.micro_batch)];
        while (oldest < begun && left[static_cast<std::size_t>(oldest)] == 0) ++oldest;
    }
    return most;
}

}  // namespace

bool backward_comes_next(const std::vector<PipelineAction>& actions, std::size_t index) {
    const PipelineAction& forward = actions[index];
    const auto next = std::find_if(actions.begin() + static_cast<std::ptrdiff_t>(index) + 1, actions.end(),
                                   [](const PipelineAction& action) { return is_computation(action.kind); });
    return next != actions.end() && next->kind != PipelineActionKind::forward &&
           next->kind != PipelineActionKind::backward_weight && next->stage == forward.stage &&
           next->micro_batch == forward.micro_batch;
}

PipelinePlan::PipelinePlan(const PipelineSettings& settings, int ranks, int rank, bool weights_can_wait)
    : ranks_(ranks),
      rank_(rank),
      chunks_(settings.chunks),
      most_trained_(settings.micro_batches),
      weights_wait_(settings.schedule == PipelineScheduleKind::zero_bubble && weights_can_wait && ranks > 1),
      training_{.kind = settings.schedule, .by_count = {}},
      evaluation_{.kind = PipelineScheduleKind::forward_only, .by_count = {}},
      slots_(static_cast<std::size_t>(settings.chunks), 1) {
    require(ranks > 1 || settings.chunks == 1, "a pipeline of one rank with several chunks");
    if (ranks == 1) return;  // forward and backward by turns
    // An update may have fewer micro-batches than planned, at the end of an epoch. Beyond three rounds the
    // room does not depend on their number.
    for (int count = 1; count <= std::min(settings.micro_batches, 3 * ranks); ++count)
        make_room(schedule(settings.schedule, count));
    for (int count = 1; count <= most_evaluated(); ++count)
        make_room(schedule(PipelineScheduleKind::forward_only, count));
}

PipelineSchedule PipelinePlan::schedule(PipelineScheduleKind kind, int micro_batches) const {
    const PipelineSchedule made =
        step_schedule(kind, {.ranks = ranks_, .chunks = chunks_, .micro_batches = micro_batches});
    return weights_wait_ ? made : with_whole_backwards(made);
}

void PipelinePlan::make_room(const PipelineSchedule& schedule) {
    const auto rank = static_cast<std::size_t>(rank_);
    const std::vector<PipelineAction>& actions = schedule.ranks[rank];
    const HeldActivations held = held_activations(schedule);
    for (int chunk = 0; chunk < chunks_; ++chunk) {
        int& slots = slots_[static_cast<std::size_t>(chunk)];
        slots = std::max(slots, held.of_stage[static_cast<std::size_t>(chunk * ranks_ + rank_)]);
    }
    batches_ = std::max(batches_, most_begun(actions, schedule.shape.micro_batches));
    const UnreadMessages unread = most_unread_messages(schedule);
    unread_activations_ = std::max(unread_activations_, unread.activations[rank]);
    unread_gradients_ = std::max(unread_gradients_, unread.gradients[rank]);
}

const std::vector<PipelineAction>& PipelinePlan::training(int micro_batches) {
    require(micro_batches <= most_trained_, "an update of more micro-batches than planned");
    return actions(training_, micro_batches);
}

const std::vector<PipelineAction>& PipelinePlan::actions(Schedules& schedules, int micro_batches) {
    auto [place, is_new] = schedules.by_count.try_emplace(micro_batches);
    if (is_new)
        place->second = schedule(schedules.kind, micro_batches).ranks[static_cast<std::size_t>(rank_)];
    return place->second;
}

}  // namespace drover
