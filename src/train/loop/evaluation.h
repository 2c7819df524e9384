#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "train/engine/training_model.h"
#include "train/loop/training_data.h"

namespace drover {

/// An evaluation over all replicas.
struct EvaluationSummary {
    /// Mean over samples of the loss of their batch, summed in fp32 as numpy does. Batches without targets
    /// are left out; NaN if there are no others.
    double loss = 0;
    double accuracy = 0;  ///< fraction of targets that were the likeliest token; NaN when there are none
    double mean_batch_accuracy = 0;  ///< mean over batches of theirs; a batch without targets has 0
    double mean_batch_entropy = 0;   ///< likewise of the predictions; 0 unless they are counted
    std::int64_t targets = 0;
    std::int64_t batches = 0;
};

using EvaluationProgress = std::function<void(std::int64_t done, std::int64_t batches)>;

/// Goes through `data` once, in order.
EvaluationSummary evaluate_all(TrainingModel& model, TrainingData& data, const EvaluationProgress& progress);

/// numpy.mean of float32 values, bit for bit: pairwise sums in fp32.
float numpy_mean(std::span<const float> values);

/// exp(eval_loss), infinite if that overflows double.
double perplexity(double loss);

}  // namespace drover
