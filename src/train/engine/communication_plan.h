#pragma once

#include <string>
#include <vector>

#include "comm/collective_call.h"
#include "train/engine/train_engine.h"

namespace drover {

/// What one rank sends in one update, along one axis of the mesh in one kind of collective.
struct PlannedCollective {
    std::string axis;
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::int64_t calls = 0;
    std::size_t bytes = 0;  ///< that this rank sends

    bool operator==(const PlannedCollective&) const = default;
};

/// Counted from the layout of the parameters and the seams of tensor parallelism, for an update of
/// `micro_batches` full micro-batches on this kind of device; checkpoints and evaluations come on top. In the
/// order in which the mesh lists its axes; nothing for a single rank.
std::vector<PlannedCollective> plan_communication(const ModelConfig& config,
                                                  const TrainEngineOptions& options, const Mesh& mesh,
                                                  const ParamStore& store, Device device,
                                                  std::int64_t micro_batches);

/// A small table of it with a total.
std::string communication_table(const std::vector<PlannedCollective>& plan);

}  // namespace drover
