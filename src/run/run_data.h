#pragma once

#include "data/packing/packing.h"
#include "data/sampling/replica_part.h"
#include "run/mesh_plan.h"
#include "run/token_source.h"
#include "train/loop/training_data.h"

/// The batches of a run.
namespace drover {

struct TrainerSettings;
struct RunSettings;

/// How batches are laid out on the processes' mesh.
struct BatchLayout {
    ReplicaPart part{};             ///< this replica's part of shared batches
    std::int64_t row_multiple = 1;  ///< row lengths are padded to a multiple of it

    std::int64_t padded(std::int64_t row_length) const {
        return (row_length + row_multiple - 1) / row_multiple * row_multiple;
    }
};

/// Either each replica has its own batches, or all share the batches of the arguments, and the loop counts
/// them as one replica. Sets in the settings which replica this is. Rows of any length (Packing::none) are
/// padded if they are to be split.
BatchLayout deal_batches(const MeshPlan& plan, const Mesh& mesh, Packing packing, TrainerSettings& settings);

/// The training data, in the order that the settings request. `loop` are the run's settings after
/// deal_batches(); `tokens` must outlive the result.
std::unique_ptr<TrainingData> training_data(const RunSettings& settings, const TrainerSettings& loop,
                                            const ModelSource& model, const TokenSource& tokens,
                                            const BatchLayout& layout);
/// The evaluation data, once and in order.
std::unique_ptr<TrainingData> evaluation_data(const RunSettings& settings, const TrainerSettings& loop,
                                              const ModelSource& model, const TokenSource& tokens,
                                              const BatchLayout& layout);

}  // namespace drover
