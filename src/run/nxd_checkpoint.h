#pragma once

#include <filesystem>
#include <vector>

#include "convert/planned_reader.h"
#include "convert/training_checkpoint.h"
#include "parallel/param_spec.h"
#include "train/checkpoint/optimizer_source.h"

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

}  // namespace drover
