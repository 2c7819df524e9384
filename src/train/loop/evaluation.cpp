#include "train/loop/evaluation.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/host_spans.h"

namespace drover {
namespace {

/// numpy's summation: eight partial sums in stretches of up to 128; above that, the two halves are added.
float pairwise_sum(std::span<const float> values) {
    const std::size_t count = values.size();
    if (count < 8) {
        float sum = 0;
        for (const float value : values) sum += value;
        return sum;
    }
    if (count > 128) {
        const std::size_t half = count / 2 - count / 2 % 8;
        return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
    }
    float partial[8];
    for (std::size_t i = 0; i < 8; ++i) partial[i] = values[i];
    std::size_t next = 8;
    for (; next + 8 <= count; next += 8)
        for (std::size_t i = 0; i < 8; ++i) partial[i] += values[next + i];
    float sum = ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
                ((partial[4] + partial[5]) + (partial[6] + partial[7]));
    for (; next < count; ++next) sum += values[next];
    return sum;
}

}  // namespace

float numpy_mean(std::span<const float> values) {
    return static_cast<float>(static_cast<double>(pairwise_sum(values)) / static_cast<double>(values.size()));
}

double perplexity(double loss) {
    return std::exp(loss);
}

EvaluationSummary evaluate_all(TrainingModel& model, TrainingData& data, const EvaluationProgress& progress) {
    EvaluationSummary summary;
    std::vector<float> losses;  // of every sample
    std::int64_t targets = 0, correct = 0;
    const auto stream = data.open({});
    double accuracies = 0, entropies = 0;
    const auto next = [&] {
        const HostSpan span("wait for data");
        return stream->next();
    };
    while (const std::optional<Batch> batch = next()) {
        const std::int64_t targets_before = targets, correct_before = correct;
        double entropy = 0;
        for (const BatchEvaluation& result : model.evaluate(*batch)) {
            if (result.loss)
                losses.insert(losses.end(), static_cast<std::size_t>(result.rows),
                              static_cast<float>(*result.loss));
            targets += result.targets;
            correct += result.correct;
            entropy += result.entropy;
        }
        if (targets > targets_before) {
            const auto count = static_cast<double>(targets - targets_before);
            accuracies += static_cast<double>(correct - correct_before) / count;
            entropies += entropy / count;
        }
        progress(++summary.batches, data.batches_per_epoch());
    }
    constexpr double undefined = std::numeric_limits<double>::quiet_NaN();
    summary.targets = targets;
    summary.loss = losses.empty() ? undefined : static_cast<double>(numpy_mean(losses));
    summary.accuracy = targets == 0 ? undefined : static_cast<double>(correct) / static_cast<double>(targets);
    if (summary.batches > 0) {
        summary.mean_batch_accuracy = accuracies / static_cast<double>(summary.batches);
        summary.mean_batch_entropy = entropies / static_cast<double>(summary.batches);
    }
    return summary;
}

}  // namespace drover
