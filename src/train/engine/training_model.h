#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/batch.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/run_state.h"

namespace drover {

/// What one update did, in numbers that the device made; the same on every rank.
struct UpdateResult {
    /// As Hugging Face logs it: the sum, over micro-batches and replicas, of the loss that was
    /// differentiated.
    double loss = 0;
    double gradient_norm = 0;  ///< before clipping
    bool updated = true;       ///< false: the step was skipped and changed nothing; the schedule stands still
    /// Where a number first was not finite, in the order in which a step computes (weights, forward,
    /// backward): "the gradient of model.layers.3.mlp.up_proj.weight", "the output of layer 3
    /// (model.layers.3)". Absent when loss and gradient norm are finite, or only scaled gradients overflowed.
    std::optional<std::string> non_finite{};
};

/// An evaluated batch of one replica.
struct BatchEvaluation {
    /// As Hugging Face computes a batch's: mean over targets, plus the experts' balance loss. Nothing for a
    /// batch without a single target.
    std::optional<double> loss{};
    std::int64_t rows = 0;     ///< without filler rows
    std::int64_t targets = 0;  ///< of those rows
    std::int64_t correct = 0;
};

/// A checkpoint as the loop asks for it: the model adds itself.
struct CheckpointRequest {
    std::filesystem::path folder;
    std::string trainer_state;  ///< text of trainer_state.json
    LoopState loop;
};

struct ParameterCounts {
    std::int64_t total = 0;
    std::int64_t active = 0;  ///< take part in a token's forward pass
    std::int64_t without_embeddings = 0;
    std::int64_t multiplied =
        0;  ///< of the active ones, those that a token is multiplied with: not the embedding
};

/// A model as the loop needs it. One rank of several calls the same functions in the same order as the
/// others.
class TrainingModel {
  public:
    virtual ~TrainingModel() = default;

    /// One update from the micro-batches of a step.
    virtual UpdateResult update(std::span<const Batch> micro_batches, double learning_rate) = 0;
    /// This replica's batch and those of the others, in their order; one batch where they share it. Filler
    /// rows do not count towards targets, but the loss is the whole batch's.
    virtual std::vector<BatchEvaluation> evaluate(const Batch& batch) = 0;
    /// Weights and configuration as a Hugging Face folder.
    virtual void save(const std::filesystem::path& folder) = 0;
    /// The weights of a checkpoint.
    virtual void load(const std::filesystem::path& folder) = 0;

    /// Begins to write a checkpoint of the model as it is now; not before the last one's outcome was asked
    /// for.
    virtual void save_checkpoint(const CheckpointRequest& request) = 0;
    /// What became of the checkpoint that was begun, once that is known; nothing while it is still written,
    /// or when there is none. With `wait`, it is known.
    virtual std::optional<CheckpointOutcome> checkpoint_outcome(bool wait) = 0;

    virtual ParameterCounts parameters() const = 0;
};

}  // namespace drover
