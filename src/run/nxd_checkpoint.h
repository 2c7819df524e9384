#pragma once

#include <filesystem>
#include <vector>

#include "convert/planned_reader.h"
#include "convert/training_checkpoint.h"
#include "optim/optimizer.h"
#include "parallel/mesh.h"
#include "parallel/param_spec.h"
#include "run/settings/run_settings.h"
#include "train/checkpoint/optimizer_source.h"
#include "train/checkpoint/run_state.h"

namespace drover {

/// A half-trained checkpoint of neuronx-distributed (step_N), from which a run continues on any mesh.
class NxdCheckpoint final : public OptimizerSource {
  public:
    /// Error if it is not one of a model with this config, or has no state of an optimizer.
    NxdCheckpoint(const std::filesystem::path& folder, const ModelConfig& config);

    /// Updates of the run.
    std::int64_t step() const { return checkpoint_.step.value_or(updates()); }
    /// Updates that the optimizer counts.
    std::int64_t updates() const { return checkpoint_.optimizer.updates; }

    /// The whole leaf: its master copy, if there is one. Error if it is missing.
    std::vector<float> weight(const LeafSpec& leaf) const {
        return weights_.read(leaf.name, leaf.shape.numel());
    }
    Tensor find(const std::string& kind, const std::string& leaf) const override;
    std::string text() const override { return folder_.string(); }

  private:
    std::filesystem::path folder_;
    TrainingCheckpoint checkpoint_;
    PlannedReader weights_, states_;
    mutable std::vector<float> state_;  ///< that was found last
};

/// How a run saves for neuronx-distributed.
struct NxdExport {
    NxdLayout layout;
    MeshShape mesh;
    int chunks = 1;  ///< of each pipeline rank
    std::int64_t key_value_copies = 1;
    bool shards_optimizer = false;   ///< ZeRO-1
    std::optional<DType> rounded{};  ///< of the weights, where the files have their master copies
    AdamWSettings adamw;
    double learning_rate = 0;  ///< of the next update
    std::int64_t batch = 1;    ///< rows of an update, of all ranks
    Json values;               ///< of the run's settings, for people
};

/// Error when the model cannot be cut so.
void check_nxd_export(const ModelConfig& config, const NxdExport& exported);

/// Turns the files of a checkpoint of ours in `folder` (weights, optimizer.safetensors) into model/, optim/
/// and the small files of neuronx-distributed. The config stays.
void rewrite_as_nxd(const std::filesystem::path& folder, const ModelConfig& config, const NxdExport& exported,
                    const LoopState& loop, const EngineState& engine);

}  // namespace drover
