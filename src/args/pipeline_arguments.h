#pragma once

#include "args/arguments.h"
#include "parallel/schedule/step_schedule.h"

namespace drover {

/// The pipeline that the arguments ask for. The number of micro-batches is that of the run's accumulation.
struct PipelineArguments {
    int ranks = 1;
    PipelineSettings settings{};
    bool balanced = false;  ///< the cuts follow from the cost of the layers
};

/// UsageError when the pipeline's arguments contradict each other.
PipelineArguments pipeline_arguments(const Arguments& arguments);

}  // namespace drover
