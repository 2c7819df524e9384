#include "backend/ops/cross_entropy.h"

#include "backend/ops/check_and_cost.h"

namespace drover {

void CrossEntropyStatistics::check(const Operands& operands) const {
    operands.ranked("logits", logits, operands.activations(), 2);
    const Shape rows = {logits.size(0)};
    operands.shaped("targets", targets, {i32}, rows);
    operands.shaped("max", max, {f32}, rows);
    operands.shaped("sum_exp", sum_exp, {f32}, rows);
    operands.shaped("target_logit", target_logit, {f32}, rows);
    operands.shaped("argmax", argmax, {i32}, rows);
    operands.optional("logit_sum", logit_sum, {f32}, rows);
    operands.optional("weighted_sum", weighted_sum, {f32}, rows);
    operands.holds(logits.size(1) > 0, "logits have no columns");
}

OperationCost CrossEntropyStatistics::cost() const {
    return memory_bound("cross-entropy statistics", {logits, targets},
                        {max, sum_exp, target_logit, argmax, logit_sum, weighted_sum});
}

void CrossEntropyRescale::check(const Operands& operands) const {
    operands.ranked("max", max, {f32}, 1);
    operands.shaped("local_max", local_max, {f32}, max.shape());
    operands.shaped("sum_exp", sum_exp, {f32}, max.shape());
    operands.shaped("argmax", argmax, {i32}, max.shape());
    operands.optional("weighted_sum", weighted_sum, {f32}, max.shape());
}

OperationCost CrossEntropyRescale::cost() const {
    return memory_bound("cross-entropy rescale", {local_max, max, sum_exp, argmax, weighted_sum},
                        {sum_exp, argmax, weighted_sum});
}

void CrossEntropyGradient::check(const Operands& operands) const {
    operands.ranked("logits", logits, operands.activations(), 2);
    const Shape rows = {logits.size(0)};
    operands.shaped("targets", targets, {i32}, rows);
    operands.shaped("max", max, {f32}, rows);
    operands.shaped("sum_exp", sum_exp, {f32}, rows);
    operands.shaped("target_logit", target_logit, {f32}, rows);
    operands.shaped("loss", loss, {f32}, rows);
    operands.optional("scale", scale, {f32}, {1});
    if (weighted_sum || argmax || entropy || correct) {
        operands.shaped("weighted_sum", weighted_sum, {f32}, rows);
        operands.shaped("argmax", argmax, {i32}, rows);
        operands.shaped("entropy", entropy, {f32}, rows);
        operands.shaped("correct", correct, {f32}, rows);
    }
    operands.holds(smoothing >= 0 && smoothing <= 1, "smoothing is not between 0 and 1");
    if (smoothing == 0) return;
    operands.shaped("logit_sum", logit_sum, {f32}, rows);
    operands.holds(vocabulary >= logits.size(1),
                   "the vocabulary is smaller than the part of it that is held");
}

OperationCost CrossEntropyGradient::cost() const {
    const Tensor replaced = scale ? logits : Tensor();
    return memory_bound("cross-entropy gradient",
                        {replaced, targets, max, sum_exp, target_logit, logit_sum, weighted_sum, argmax},
                        {replaced, loss, entropy, correct});
}

}  // namespace drover
