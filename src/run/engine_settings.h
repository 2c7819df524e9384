#pragma once

#include "run/mesh_plan.h"
#include "run/settings/run_settings.h"
#include "train/engine/train_engine.h"

/// What the settings of a run mean to its engine.
namespace drover {

/// Weights have the format that is asked for; "as stored" is that of the config (`stored`, fp32 when it says
/// nothing), and so is nothing, unless HfCompat names a release that takes fp32. `bf16` and `fp16` add a
/// master copy to fp32 weights; fp16 needs a GPU. Gradients are fp32 with a master copy, or where their sums
/// are wanted so.
Precision chosen_precision(const RunSettings& settings, std::optional<DType> stored, Device device);
/// One line that names every format.
std::string precision_text(const Precision& precision);

/// Everything about the engine but how large its batches are.
TrainEngineOptions engine_options(const RunSettings& settings, const Precision& precision);
/// Everything about the engine of a process of a mesh, for batches of `rows` rows of up to `row_length`
/// tokens.
TrainEngineOptions engine_options(const RunSettings& settings, const Precision& precision,
                                  const MeshPlan& mesh, Device device, std::int64_t rows,
                                  std::int64_t row_length);

}  // namespace drover
