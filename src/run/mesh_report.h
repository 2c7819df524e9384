#pragma once

#include <string>

#include "run/mesh_plan.h"

namespace drover {

/// The axes of a mesh in a small table: how long they are and what differs along them. With `every_rank`,
/// where each rank stands follows.
std::string mesh_table(const MeshPlan& settings, const MachinePlace& machine, bool tokens_are_split,
                       bool every_rank);

/// How the batch of the command line is dealt to the replicas, in a sentence. `rows` is
/// --per_device_train_batch_size.
std::string batch_text(const MeshPlan& settings, std::int64_t rows);

}  // namespace drover
