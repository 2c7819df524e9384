#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {
namespace {

void softmax_row(const float* logits, float* probabilities, std::int64_t experts) {
    float largest = logits[0], sum = 0;
    for (std::int64_t e = 1; e < experts; ++e) largest = logits[e] > largest ? logits[e] : largest;
    for (std::int64_t e = 0; e < experts; ++e) sum += probabilities[e] = __builtin_expf(logits[e] - largest);
    for (std::int64_t e = 0; e < experts; ++e) probabilities[e] /= sum;
}

/// The likeliest expert after the previous choice: less likely, or as likely with a higher index. previous =
/// −1 at first.
std::int64_t next_choice(const float* probabilities, std::int64_t experts, std::int64_t previous) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e) {
        const bool allowed = previous < 0 || probabilities[e] < probabilities[previous] ||
                             (probabilities[e] == probabilities[previous] && e > previous);
        if (allowed && (best < 0 || probabilities[e] > probabilities[best])) best = e;
    }
    return best;
}

}  // namespace

void router(const Router& op) {
    const std::int64_t tokens = op.logits.size(0), experts = op.logits.size(1), slots = op.experts.size(1);
    const bool dense = slots == experts && op.chosen != experts;
    for_each_row(tokens, experts * 8, [&](std::int64_t n) {
        float* probabilities = data_of<float>(op.probabilities) + n * experts;
        std::int32_t* expert_of = data_of<std::int32_t>(op.experts) + n * slots;
        float* weights = data_of<float>(op.weights) + n * slots;
        softmax_row(data_of<float>(op.logits) + n * experts, probabilities, experts);
        if (dense)
            for (std::int64_t e = 0; e < experts; ++e) {
                expert_of[e] = static_cast<std::int32_t>(e);
                weights[e] = 0;
            }
        float sum = 0;
        std::int64_t expert = -1;
        for (std::int64_t j = 0; j < op.chosen; ++j) {
            expert = next_choice(probabilities, experts, expert);
            sum += probabilities[expert];
            const std::int64_t slot = dense ? expert : j;
            expert_of[slot] = static_cast<std::int32_t>(expert);
            weights[slot] = probabilities[expert];
        }
        for (std::int64_t slot = 0; slot < slots; ++slot) weights[slot] /= sum;
    });
    if (!op.choices) return;

    // Small sums in a fixed order; the choices are recomputed, since dense slots do not record them.
    const std::int32_t* counts = op.counts ? data_of<std::int32_t>(op.counts) : nullptr;
    double* choices = data_of<double>(op.choices);
    double* sums = data_of<double>(op.probability_sums);
    for (std::int64_t n = 0; n < tokens; ++n) {
        if (counts && counts[n] == 0) continue;
        const float* probabilities = data_of<float>(op.probabilities) + n * experts;
        std::int64_t expert = -1;
        for (std::int64_t j = 0; j < op.chosen; ++j) {
            expert = next_choice(probabilities, experts, expert);
            choices[j * experts + expert] += 1;
        }
        for (std::int64_t e = 0; e < experts; ++e) sums[e] += static_cast<double>(probabilities[e]);
    }
}

void router_backward(const RouterBackward& op) {
    const std::int64_t tokens = op.probabilities.size(0), experts = op.probabilities.size(1),
                       slots = op.experts.size(1);
    const std::int32_t* counts = op.counts ? data_of<std::int32_t>(op.counts) : nullptr;
    const float* balance = op.balance ? data_of<float>(op.balance) : nullptr;
    with_type(op.dlogits.dtype(), [&](auto t) {
        for_each_row(tokens, experts * 8, [&](std::int64_t n) {
            const float* probabilities = data_of<float>(op.probabilities) + n * experts;
            const std::int32_t* expert_of = data_of<std::int32_t>(op.experts) + n * slots;
            const float* weights = data_of<float>(op.weights) + n * slots;
            const float* dweights = data_of<float>(op.dweights) + n * slots;
            const bool counted = !counts || counts[n] != 0;
            // weight = p / Σ p over the chosen experts, which are those with a positive weight.
            float chosen_sum = 0, mean = 0;
            for (std::int64_t s = 0; s < slots; ++s)
                if (weights[s] > 0) {
                    chosen_sum += probabilities[expert_of[s]];
                    mean += dweights[s] * weights[s];
                }
            const auto dprobability = [&](std::int64_t e) {
                float d = balance && counted ? balance[e] : 0.f;
                for (std::int64_t s = 0; s < slots; ++s)
                    if (expert_of[s] == e && weights[s] > 0) d += (dweights[s] - mean) / chosen_sum;
                return d;
            };
            float inner = 0;
            for (std::int64_t e = 0; e < experts; ++e) inner += dprobability(e) * probabilities[e];
            auto* dlogits = data_of<decltype(t)>(op.dlogits) + n * op.dlogits.stride(0);
            for (std::int64_t e = 0; e < experts; ++e)
                store_one(dlogits, e, probabilities[e] * (dprobability(e) - inner));
        });
    });
}

void balance_loss(const BalanceLoss& op) {
    const std::int64_t slots = op.choices.size(0), experts = op.choices.size(1);
    const double* choices = data_of<double>(op.choices);
    const double* sums = data_of<double>(op.probability_sums);
    float* balance = data_of<float>(op.balance);
    double tokens = 0, loss = 0;
    for (std::int64_t e = 0; e < experts; ++e) tokens += choices[e];  // all have a first choice
    tokens = tokens > 0 ? tokens : 1;
    for (std::int64_t e = 0; e < experts; ++e) {
        double fraction = 0;
        for (std::int64_t j = 0; j < slots; ++j) fraction += choices[j * experts + e] / tokens;
        const double factor = op.coefficient * static_cast<double>(experts) * fraction / tokens;
        loss += factor * sums[e];
        balance[e] = static_cast<float>(op.scale * factor);
    }
    data_of<double>(op.loss)[0] = loss;
}

}  // namespace drover::cpu::DROVER_ISA
