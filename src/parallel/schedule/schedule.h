#pragma once

#include <cstddef>
#include <vector>

#include "parallel/schedule/action.h"

namespace drover {

/// The size of a pipeline step.
struct PipelineShape {
    int ranks = 1;
    int chunks = 1;  ///< of each rank: more than one is interleaving ("virtual stages")
    int micro_batches = 1;

    int stages() const { return ranks * chunks; }
    int rank_of(int stage) const { return stage % ranks; }
    /// The place of (stage, micro-batch) in a table of all of them.
    std::size_t index(int stage, int micro_batch) const {
        return static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches) +
               static_cast<std::size_t>(micro_batch);
    }
    std::size_t table_size() const { return index(stages(), 0); }

    bool operator==(const PipelineShape&) const = default;
};

/// What every rank does in one step, in its order. Generators emit computation alone; passes return it with
/// transfers, gathers and reductions.
struct PipelineSchedule {
    PipelineShape shape;
    std::vector<std::vector<PipelineAction>> ranks;

    bool operator==(const PipelineSchedule&) const = default;
};

/// Error unless every rank has its own stages only, and every stage computes every micro-batch once: forward,
/// then backward, or backward_input and later backward_weight. A schedule without any backward evaluates.
/// Transfers are checked by simulate().
void check_computation(const PipelineSchedule& schedule);

/// The most micro-batches whose activations are held at a time. A stage holds a micro-batch from its forward
/// until its weights have their gradient; without a backward, during its forward.
struct HeldActivations {
    std::vector<int> of_stage;
    std::vector<int> of_rank;  ///< of all its stages together
};

/// The schedule has passed check_computation.
HeldActivations held_activations(const PipelineSchedule& schedule);

}  // namespace drover
