#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/batch.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/run_state.h"

namespace drover {

/// What one update did, as the loop sees it.
struct UpdateOutcome {
    /// Losses that add up to that of the step over all replicas: one per micro-batch, or their sum.
    std::vector<double> losses;
    double gradient_norm = 0;  ///< before clipping
    /// What was not a finite number, if anything: "the gradient of model.layers.3.mlp.up_proj.weight".
    std::optional<std::string> non_finite{};
    bool skipped = false;  ///< nothing was updated (overflow of scaled gradients): the schedule stands still
};

/// An evaluated batch of one replica.
struct BatchEvaluation {
    /// As Hugging Face computes a batch's: mean over targets, plus the experts' balance loss. Nothing for a
    /// batch without a single target.
    std::optional<double> loss{};
    std::int64_t rows = 0;     ///< that are no repetitions; see LoadedBatch::fresh
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
    virtual UpdateOutcome update(std::span<const TokenBatch> micro_batches, double learning_rate) = 0;
    /// This replica's batch and those of the others, in their order. Only the first `rows` rows count towards
    /// targets; the loss is the whole batch's.
    virtual std::vector<BatchEvaluation> evaluate(const TokenBatch& batch, std::int64_t rows) = 0;
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
