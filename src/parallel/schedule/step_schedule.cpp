#include "parallel/schedule/step_schedule.h"

#include "core/error.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/transfers.h"

namespace drover {
namespace {

PipelineSchedule computations(PipelineScheduleKind kind, const PipelineShape& shape) {
    switch (kind) {
        case PipelineScheduleKind::one_forward_one_backward:
            if (shape.chunks == 1) return one_forward_one_backward(shape.ranks, shape.micro_batches);
            return interleaved(shape.ranks, shape.chunks, shape.micro_batches);
        case PipelineScheduleKind::zero_bubble:
            return zero_bubble(shape.ranks, shape.chunks, shape.micro_batches);
        case PipelineScheduleKind::forward_only:
            return forward_only(shape.ranks, shape.chunks, shape.micro_batches);
    }
    bug("unknown pipeline schedule");
}

/// An order of all micro-batches is an order of some of them too: dependencies never cross micro-batches.
PipelineSchedule with_micro_batches_below(PipelineSchedule schedule, int count) {
    schedule.shape.micro_batches = count;
    for (auto& actions : schedule.ranks)
        std::erase_if(actions, [&](const PipelineAction& action) { return action.micro_batch >= count; });
    return schedule;
}

}  // namespace

std::string_view name_of(PipelineScheduleKind kind, int chunks) {
    switch (kind) {
        case PipelineScheduleKind::one_forward_one_backward:
            return chunks == 1 ? "1F1B" : "interleaved 1F1B";
        case PipelineScheduleKind::zero_bubble:
            return "zero bubble";
        case PipelineScheduleKind::forward_only:
            return "forward only";
    }
    bug("unknown pipeline schedule");
}

PipelineSchedule step_schedule(PipelineScheduleKind kind, const PipelineShape& shape) {
    PipelineShape turns = shape;
    if (shape.chunks > 1)
        turns.micro_batches = (shape.micro_batches + shape.ranks - 1) / shape.ranks * shape.ranks;
    return with_transfers(with_micro_batches_below(computations(kind, turns), shape.micro_batches));
}

PipelineSchedule with_whole_backwards(const PipelineSchedule& schedule) {
    PipelineSchedule whole = schedule;
    for (auto& actions : whole.ranks) {
        std::erase_if(actions, [](const PipelineAction& action) {
            return action.kind == PipelineActionKind::backward_weight;
        });
        for (PipelineAction& action : actions)
            if (action.kind == PipelineActionKind::backward_input) action.kind = PipelineActionKind::backward;
    }
    return whole;
}

}  // namespace drover
