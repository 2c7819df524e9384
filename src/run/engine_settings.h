#pragma once

#include "run/mesh_plan.h"
#include "run/settings/run_settings.h"
#include "train/engine/train_engine_options.h"

/// Translates the settings of a run into engine options.
namespace drover {

/// Weights have the requested format. "As stored" is the config's format (`stored`; fp32 if it has none),
/// which is also the default unless HfCompat names a release that uses fp32. `bf16` and `fp16` add a master
/// copy to fp32 weights; fp16 needs a GPU. Gradients are fp32 with a master copy, or if fp32 sums are
/// requested.
Precision chosen_precision(const RunSettings& settings, std::optional<DType> stored, Device device);
/// One line naming every format.
std::string precision_text(const Precision& precision, Fp8Recipe fp8);

/// All engine options except the batch sizes.
TrainEngineOptions engine_options(const RunSettings& settings, const Precision& precision);
/// All engine options for one process of a mesh, for batches of `rows` rows of up to `row_length` tokens.
TrainEngineOptions engine_options(const RunSettings& settings, const Precision& precision,
                                  const ModelConfig& config, const MeshPlan& mesh, Device device,
                                  std::int64_t rows, std::int64_t row_length);

}  // namespace drover
