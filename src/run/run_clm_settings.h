#pragma once

#include "args/parse_arguments.h"
#include "run/mesh_settings.h"
#include "train/callbacks/non_finite_watch.h"
#include "train/engine/train_engine.h"
#include "train/state/trainer_settings.h"

/// What the arguments of `drover run_clm` mean to the parts that do the work.
namespace drover {

/// The loop's settings, finished.
TrainerSettings trainer_settings(const Arguments& arguments);

/// What --hf_compat and --loss_denominator say.
HfCompat hf_compat(const Arguments& arguments);

/// Weights are in the dtype that --dtype names; "auto" takes that of the config (`stored`, fp32 when it says
/// nothing), and so does saying nothing, unless --hf_compat names a release that takes fp32. --bf16 and
/// --fp16 add a master copy to fp32 weights; fp16 needs a GPU. Gradients are fp32 with a master copy, or
/// where fp32_reduce_scatter of --fsdp_config wants their sums so.
Precision chosen_precision(const RunArguments& run, std::optional<DType> stored, Device device);
/// One line that names every format.
std::string precision_text(const Precision& precision);

OptimizerSettings optimizer_settings(const Arguments& arguments);

/// What --on_nan says.
OnNonFinite on_non_finite(const Arguments& arguments);

/// Everything about the engine but how large its batches are.
TrainEngineOptions engine_options(const RunArguments& run, const Precision& precision);
/// Everything about the engine of a process of a mesh, for batches of `rows` rows of up to `row_length`
/// tokens.
TrainEngineOptions engine_options(const RunArguments& run, const Precision& precision,
                                  const MeshSettings& mesh, Device device, std::int64_t rows,
                                  std::int64_t row_length);

}  // namespace drover
