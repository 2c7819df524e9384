#pragma once

#include <vector>

#include "core/arena.h"

namespace drover {

class Backend;
class Mesh;
struct ModelConfig;
struct TrainEngineOptions;

/// The memory of one pipeline rank.
struct RankMemory {
    MemoryPlan device;
    MemoryPlan host;  ///< of an offloaded optimizer
};

/// The memory of every pipeline rank, which differs by its layers and by how many micro-batches it holds. Of
/// the ranks with the same layers, the first is planned, which has the most. Without a pipeline, that of this
/// rank. Nothing is sent or allocated.
std::vector<RankMemory> plan_pipeline_memory(const ModelConfig& config, const TrainEngineOptions& options,
                                             Backend& backend, const Mesh& mesh);

/// The pipeline rank that needs the most memory.
int largest_rank(const std::vector<RankMemory>& ranks);

}  // namespace drover
