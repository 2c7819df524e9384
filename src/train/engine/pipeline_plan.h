#pragma once

#include <map>
#include <vector>

#include "parallel/schedule/simulate.h"
#include "parallel/schedule/step_schedule.h"

namespace drover {

/// The schedules of one rank of a pipeline, and the buffers that they need. A run without a pipeline has a
/// pipeline of one rank.
class PipelinePlan {
  public:
    /// `weights_can_wait`: the gradients of weights may be computed later than those of inputs.
    PipelinePlan(const PipelineSettings& settings, int ranks, int rank, bool weights_can_wait);

    /// The most micro-batches that an update may have.
    int most_trained() const { return most_trained_; }
    /// What this rank does in an update of `micro_batches`, no more than planned, or to evaluate them.
    const std::vector<PipelineAction>& training(int micro_batches);
    const std::vector<PipelineAction>& evaluation(int micro_batches) {
        return actions(evaluation_, micro_batches);
    }
    /// An update on paper. The times are one for all stages, or one for each.
    PipelineTimeline simulated(int micro_batches, const std::vector<StageTimes>& times) const {
        return simulate(schedule(training_.kind, micro_batches),
                        {.stages = times, .buffers = transfer_buffers});
    }
    /// The most that are evaluated at once.
    int most_evaluated() const { return ranks_ > 1 ? 2 * ranks_ : 1; }

    int ranks() const { return ranks_; }
    int chunks() const { return chunks_; }
    /// Of a local chunk: micro-batches whose activations are kept at a time.
    int slots(int chunk) const { return slots_[static_cast<std::size_t>(chunk)]; }
    /// Micro-batches that are between their first forward and their last backward at a time.
    int batches() const { return batches_; }
    /// Messages that have been received and not yet read, at a time.
    int unread_activations() const { return unread_activations_; }
    int unread_gradients() const { return unread_gradients_; }
    /// Backwards come in two parts.
    bool weights_wait() const { return weights_wait_; }

  private:
    struct Schedules {
        PipelineScheduleKind kind;
        std::map<int, std::vector<PipelineAction>> by_count;
    };
    PipelineSchedule schedule(PipelineScheduleKind kind, int micro_batches) const;
    const std::vector<PipelineAction>& actions(Schedules& schedules, int micro_batches);
    void make_room(const PipelineSchedule& schedule);

    int ranks_, rank_, chunks_, most_trained_;
    bool weights_wait_;
    Schedules training_, evaluation_;
    std::vector<int> slots_;
    int batches_ = 1;
    int unread_activations_ = 0, unread_gradients_ = 0;
};

/// Whether the next computation after `actions[index]`, a forward, is the backward of the same micro-batch in
/// the same stage.
bool backward_comes_next(const std::vector<PipelineAction>& actions, std::size_t index);

}  // namespace drover
