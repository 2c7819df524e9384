#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// The loss and its gradient, in two steps.
namespace drover {

/// Target value of a position that has no target.
inline constexpr std::int32_t ignored_target = -100;

/// First of two steps: what each row of logits contributes. A head that holds only the vocabulary rows
/// [first_id, first_id + V) leaves statistics that are then reduced over the ranks of that axis.
struct CrossEntropyStatistics {
    Tensor logits;        ///< [R,V]
    Tensor targets;       ///< [R] i32, ignored_target where there is none
    Tensor max;           ///< [R] f32
    Tensor sum_exp;       ///< [R] f32: sum of exp(logit − max)
    Tensor target_logit;  ///< [R] f32: 0 when the target is ignored or not held here
    Tensor argmax;        ///< [R] i32, global id; the lowest one on ties
    Tensor logit_sum{};   ///< [R] f32, optional: sum of the logits, which label smoothing needs
    /// [R] f32, optional: sum of exp(logit − max) · logit, which the entropy needs
    Tensor weighted_sum{};
    std::int64_t first_id = 0;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// Between the two steps, where the vocabulary is spread over ranks: max is reduced over them by its maximum,
/// then this rank's sums are brought to that maximum, and then sum_exp, target_logit, logit_sum and
/// weighted_sum are reduced by sum and argmax by minimum.
struct CrossEntropyRescale {
    Tensor local_max;  ///< [R] f32: this rank's own
    Tensor max;        ///< [R] f32: over all ranks
    Tensor sum_exp;  ///< [R] f32, multiplied by exp(local_max − max); 0 where this rank holds no vocabulary
    Tensor argmax;   ///< [R] i32, becomes the largest integer where another rank's logit is larger
    Tensor weighted_sum{};  ///< [R] f32, optional: multiplied like sum_exp

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// Second step: loss[r] = log(sum_exp) + max − target_logit (0 where ignored); and, when `scale` is given,
/// the logits are replaced by scale · (softmax − one-hot), zero in ignored rows. With label smoothing the
/// target is not the one-hot vector but (1 − smoothing) · one-hot + smoothing / vocabulary, as in Hugging
/// Face's LabelSmoother.
struct CrossEntropyGradient {
    Tensor logits;        ///< [R,V], replaced in place by its gradient
    Tensor targets;       ///< [R] i32
    Tensor max;           ///< [R] f32
    Tensor sum_exp;       ///< [R] f32
    Tensor target_logit;  ///< [R] f32
    Tensor loss;          ///< [R] f32
    Tensor scale{};       ///< [1] f32, optional: absent in evaluation
    std::int64_t first_id = 0;
    float smoothing = 0;
    Tensor logit_sum{};           ///< [R] f32, only with smoothing
    std::int64_t vocabulary = 0;  ///< rows of the whole vocabulary, only with smoothing

    // What a training record says of the predictions: all four, or none.
    Tensor weighted_sum{};  ///< [R] f32
    Tensor argmax{};        ///< [R] i32
    Tensor entropy{};       ///< [R] f32, result: that of the softmax, in nats; 0 where ignored
    Tensor correct{};       ///< [R] f32, result: 1 where the target is the argmax

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
