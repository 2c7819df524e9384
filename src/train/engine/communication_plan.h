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

/// What an engine for this mesh would send from this rank in an update of `micro_batches` full micro-batches
/// on this kind of device; checkpoints and evaluations come on top. Counted as memory is: a TrainEngine of
/// its own walks through the update, with buffers that have no memory behind them, operations that do
/// nothing, and communicators that only count. No other rank takes part, and nothing of it stays. Axis by
/// axis from the innermost; nothing for a single rank.
std::vector<PlannedCollective> plan_communication(const ModelConfig& config,
                                                  const TrainEngineOptions& options, const Mesh& mesh,
                                                  Device device, std::int64_t micro_batches);

/// A small table of it with a total.
std::string communication_table(const std::vector<PlannedCollective>& plan);

}  // namespace drover
