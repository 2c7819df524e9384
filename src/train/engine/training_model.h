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

/// What one update did, in numbers computed on the device; the same on every rank.
struct UpdateResult {
    /// As Hugging Face logs it: the sum, over micro-batches and replicas, of the loss that was
    /// differentiated.
    double loss = 0;
    double gradient_norm = 0;  ///< before clipping
    bool updated = true;       ///< false: skipped without any change; the schedule does not advance
    /// Where predictions are counted (CausalLmOptions), the sums over micro-batches of what TRL logs: of
    /// each, the mean over the targets of all replicas of the entropy of the prediction, in nats, and the
    /// share of targets that were the likeliest token. A micro-batch without targets has 0.
    double entropy_sum = 0, accuracy_sum = 0;
    /// Where a non-finite number first appeared, in the order in which a step computes (weights, forward,
    /// backward): "the gradient of model.layers.3.mlp.up_proj.weight", "the output of layer 3
    /// (model.layers.3)". Absent when loss and gradient norm are finite, or when only scaled gradients
    /// overflowed.
    std::optional<std::string> non_finite{};
};

/// The evaluation of one replica's batch.
struct BatchEvaluation {
    /// As Hugging Face computes it: mean over targets, plus the experts' balance loss. Nothing for a batch
    /// without targets.
    std::optional<double> loss{};
    std::int64_t rows = 0;     ///< without filler rows
    std::int64_t targets = 0;  ///< of those rows
    std::int64_t correct = 0;
    double entropy = 0;  ///< sum over the targets; 0 unless predictions are counted
};

/// A checkpoint as the loop requests it; the model adds its own tensors.
struct CheckpointRequest {
    std::filesystem::path folder;
    std::string trainer_state;  ///< text of trainer_state.json
    LoopState loop;
};

struct ParameterCounts {
    std::int64_t total = 0;
    std::optional<std::int64_t> trained{};  ///< absent: all; with adapters, theirs are not in `total`
    std::int64_t active = 0;                ///< used in a token's forward pass
    std::int64_t without_embeddings = 0;
    std::int64_t multiplied =
        0;  ///< of the active ones, those that a token is multiplied with: not the embedding
};

/// A model as the loop needs it. With several ranks, all must call the same functions in the same order.
class TrainingModel {
  public:
    virtual ~TrainingModel() = default;

    /// One update from the micro-batches of a step.
    virtual UpdateResult update(std::span<const Batch> micro_batches, double learning_rate) = 0;
    /// This replica's batch and those of the others, in replica order; a single one if they share it. Filler
    /// rows do not count towards targets, but the loss is that of the whole batch.
    virtual std::vector<BatchEvaluation> evaluate(const Batch& batch) = 0;
    /// Weights and configuration as a Hugging Face folder.
    virtual void save(const std::filesystem::path& folder) = 0;
    /// Loads the weights of a checkpoint.
    virtual void load(const std::filesystem::path& folder) = 0;

    /// Begins to write a checkpoint of the model as it is now. The outcome of the previous one must have been
    /// read before.
    virtual void save_checkpoint(const CheckpointRequest& request) = 0;
    /// The outcome of the checkpoint that was begun; nothing while it is still being written, or when there
    /// is none. With `wait`, waits until it is known.
    virtual std::optional<CheckpointOutcome> checkpoint_outcome(bool wait) = 0;

    virtual ParameterCounts parameters() const = 0;
};

}  // namespace drover
