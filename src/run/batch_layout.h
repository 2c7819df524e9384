#pragma once

#include "data/packing/packing.h"
#include "data/sampling/replica_part.h"
#include "run/mesh_plan.h"
#include "train/state/trainer_settings.h"

namespace drover {

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
BatchLayout deal_batches(const MeshPlan& plan, const Mesh& mesh, Packing packing,
                         TrainerSettings& settings);

}  // namespace drover
