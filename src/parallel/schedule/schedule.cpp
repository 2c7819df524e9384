#include "parallel/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"

namespace drover {
namespace {

[[noreturn]] void refuse_schedule(std::string_view cause) {
    throw Error(fmt::format("The pipeline schedule is not sound: {}.", cause),
                "Give every stage each micro-batch once, forward before backward, on rank stage % ranks.");
}

/// What has been done for a micro-batch in a stage.
struct Progress {
    bool forward = false, input = false, weight = false;
};

void take_computation(const PipelineAction& action, int rank, Progress& done) {
    const auto require_that = [&](bool holds, std::string_view problem) {
        if (!holds) refuse_schedule(fmt::format("rank {} has {} {}", rank, to_text(action), problem));
    };
    switch (action.kind) {
        case PipelineActionKind::forward:
            require_that(!done.forward, "twice");
            done.forward = true;
            break;
        case PipelineActionKind::backward:
            require_that(done.forward, "before its forward");
            require_that(!done.input, "after another backward of it");
            done.input = done.weight = true;
            break;
        case PipelineActionKind::backward_input:
            require_that(done.forward, "before its forward");
            require_that(!done.input, "after another backward of it");
            done.input = true;
            break;
        case PipelineActionKind::backward_weight:
            require_that(done.input, "before its input's gradient");
            require_that(!done.weight, "after another weight gradient of it");
            done.weight = true;
            break;
        default:
            break;
    }
}

bool has_backward(const PipelineSchedule& schedule) {
    return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const auto& actions) {
        return std::any_of(actions.begin(), actions.end(), [](const PipelineAction& action) {
            return is_computation(action.kind) && action.kind != PipelineActionKind::forward;
        });
    });
}

}  // namespace

void check_computation(const PipelineSchedule& schedule) {
    const PipelineShape& shape = schedule.shape;
    if (shape.ranks < 1 || shape.chunks < 1 || shape.micro_batches < 1)
        refuse_schedule(fmt::format("it has {} ranks, {} chunks and {} micro-batches", shape.ranks,
                                    shape.chunks, shape.micro_batches));
    if (schedule.ranks.size() != static_cast<std::size_t>(shape.ranks))
        refuse_schedule(fmt::format("it is for {} ranks and has {}", shape.ranks, schedule.ranks.size()));
    std::vector<Progress> progress(shape.table_size());
    for (int rank = 0; rank < shape.ranks; ++rank)
        for (const PipelineAction& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
            if (action.stage < 0 || action.stage >= shape.stages() || shape.rank_of(action.stage) != rank)
                refuse_schedule(fmt::format("rank {} has {}, which is not its stage", rank, to_text(action)));
            if (!has_micro_batch(action.kind)) continue;
            if (action.micro_batch < 0 || action.micro_batch >= shape.micro_batches)
                refuse_schedule(fmt::format("rank {} has {}, but there are {} micro-batches", rank,
                                            to_text(action), shape.micro_batches));
            take_computation(action, rank, progress[shape.index(action.stage, action.micro_batch)]);
        }
    const bool trains = has_backward(schedule);
    for (int stage = 0; stage < shape.stages(); ++stage)
        for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
            const Progress& done = progress[shape.index(stage, micro_batch)];
            const char* missing = !done.forward  ? "forward"
                                  : !trains      ? nullptr
                                  : !done.input  ? "backward"
                                  : !done.weight ? "weight gradient"
                                                 : nullptr;
            if (missing)
                refuse_schedule(
                    fmt::format("stage {} has no {} of micro-batch {}", stage, missing, micro_batch));
        }
}

HeldActivations held_activations(const PipelineSchedule& schedule) {
    const bool trains = has_backward(schedule);
    HeldActivations most{std::vector<int>(static_cast<std::size_t>(schedule.shape.stages())),
                         std::vector<int>(schedule.ranks.size())};
    std::vector<int> held(most.of_stage.size());
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        int held_by_rank = 0;
        for (const PipelineAction& action : schedule.ranks[rank]) {
            const auto stage = static_cast<std::size_t>(action.stage);
            if (action.kind == PipelineActionKind::forward) {
                most.of_stage[stage] = std::max(most.of_stage[stage], held[stage] + 1);
                most.of_rank[rank] = std::max(most.of_rank[rank], held_by_rank + 1);
                if (trains) ++held[stage], ++held_by_rank;
            } else if (action.kind == PipelineActionKind::backward ||
                       action.kind == PipelineActionKind::backward_weight) {
                --held[stage], --held_by_rank;
            }
        }
    }
    return most;
}

}  // namespace drover
