#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/collective_call.h"
#include "core/tensor.h"

namespace drover {

class Mesh;
struct ModelConfig;
struct TrainEngineOptions;

/// What one rank sends in one update, along one mesh axis with one kind of collective.
struct PlannedCollective {
    std::string axis;
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::int64_t calls = 0;
    std::size_t bytes = 0;  ///< sent by this rank

    bool operator==(const PlannedCollective&) const = default;
};

/// What an engine for this mesh would send from this rank in an update of `micro_batches` full micro-batches
/// on this kind of device. Checkpoints and evaluations come on top. Counted the way memory is: a separate
/// TrainEngine runs through the update with buffers that have no memory, operations that do nothing, and
/// communicators that only count. No other rank takes part, and no state remains. Axis by axis from the
/// innermost; empty for a single rank.
std::vector<PlannedCollective> plan_communication(const ModelConfig& config,
                                                  const TrainEngineOptions& options, const Mesh& mesh,
                                                  Device device, std::int64_t micro_batches);

/// The plan as a small table with a total.
std::string communication_table(const std::vector<PlannedCollective>& plan);

}  // namespace drover
