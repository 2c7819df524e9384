#pragma once

#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "train/engine/pipeline_memory.h"

/// What the start of a run says of its pipeline.
namespace drover {

/// A pipeline as the engine will run it.
struct PlannedPipeline {
    const ModelConfig& config;
    const TrainEngineOptions& options;
    MeshShape mesh;
};

/// Each rank's layers and memory, and for how many micro-batches it has room; with several stages, the sum of
/// theirs. Without `trains` only layers and memory.
std::string pipeline_table(const PlannedPipeline& pipeline, const std::vector<RankMemory>& memory,
                           bool trains);

/// The part of the time in which the pipeline's ranks do not compute, if floating-point operations take the
/// time. It has an upper bound for very many micro-batches.
double bubble_fraction(const PlannedPipeline& pipeline);

/// The same as a sentence, and what would make it smaller. `balanced`: the cuts are balanced already.
std::string bubble_text(const PlannedPipeline& pipeline, bool balanced);

/// How a number of micro-batches that the ranks do not divide is run; empty if that needs no explanation.
std::string uneven_turns_text(const PlannedPipeline& pipeline);

/// That zero bubble keeps its backwards whole, and why; empty if it does not.
std::string whole_backwards_text(const PlannedPipeline& pipeline);

}  // namespace drover
