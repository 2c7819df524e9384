#pragma once

#include "api/mesh_settings.h"
#include "app/run_clm_sources.h"
#include "train/training_data.h"

/// The batches of a run of `drover run_clm`.
namespace drover {

/// How the processes' mesh wants batches.
struct BatchForm {
    BatchShare share{};             ///< of batches that all replicas share
    std::int64_t row_multiple = 1;  ///< rows are padded to a multiple of it
};

/// Replicas have batches of their own, or share those of the command line; the loop then counts one. Tells
/// the settings which replica this is, and rounds up the longest row where rows of any length are to be
/// split.
BatchForm deal_batches(const MeshSettings& mesh_settings, const Mesh& mesh, TrainerSettings& settings,
                       TokenSource& tokens);

/// What is trained on, in the order that the arguments ask for. `tokens` must outlive it.
std::unique_ptr<TrainingData> training_data(const Arguments& arguments, const TrainerSettings& settings,
                                            const ModelSource& model, const TokenSource& tokens,
                                            const BatchForm& form);
/// What is evaluated, once and in order.
std::unique_ptr<TrainingData> evaluation_data(const Arguments& arguments, const TrainerSettings& settings,
                                              const ModelSource& model, const TokenSource& tokens,
                                              const BatchForm& form);

}  // namespace drover
