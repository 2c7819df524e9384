#pragma once

#include <string>

#include "run/mesh_plan.h"

namespace drover {

/// A small table of the mesh's axes: their lengths and what differs along them. With `every_rank`, followed
/// by each rank's position.
std::string mesh_table(const MeshPlan& settings, const MachinePlace& machine, bool tokens_are_split,
                       bool every_rank);

/// How the batch of the command line is dealt to the replicas, as a sentence. `rows` is
/// --per_device_train_batch_size.
std::string batch_text(const MeshPlan& settings, std::int64_t rows);

}  // namespace drover
