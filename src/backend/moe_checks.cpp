#include "backend/backend.h"
#include "backend/operands.h"

namespace drover {

void Backend::check(const JitterTokens& op) const {
    const Operands operands("jitter_tokens", device());
    operands.ranked("x", op.x, operands.activations(), 2);
    operands.packed("x", op.x);
    operands.shaped("scalars", op.scalars, {f32}, {StepScalar::count});
    operands.holds(op.first_token >= 0, "the first token has a negative number");
}

void Backend::check(const Router& op) const {
    const Operands operands("router", device());
    operands.ranked("logits", op.logits, {f32}, 2);
    operands.ranked("experts", op.experts, {i32}, 2);
    const std::int64_t tokens = op.logits.size(0), experts = op.logits.size(1), slots = op.experts.size(1);
    operands.shaped("experts", op.experts, {i32}, {tokens, slots});
    operands.shaped("weights", op.weights, {f32}, {tokens, slots});
    operands.shaped("probabilities", op.probabilities, {f32}, op.logits.shape());
    operands.optional("counts", op.counts, {i32}, {tokens});
    operands.optional("choices", op.choices, {f64}, {op.chosen, experts});
    operands.optional("probability_sums", op.probability_sums, {f64}, {experts});
    operands.holds(op.chosen >= 1 && op.chosen <= experts,
                   "chosen is not between 1 and the number of experts");
    operands.holds(slots == op.chosen || slots == experts, "a token has neither k slots nor one per expert");
    operands.holds(static_cast<bool>(op.choices) == static_cast<bool>(op.probability_sums),
                   "choices and probability_sums go together");
    operands.packed("logits", op.logits);
}

void Backend::check(const RouterBackward& op) const {
    const Operands operands("router_backward", device());
    operands.ranked("probabilities", op.probabilities, {f32}, 2);
    operands.ranked("experts", op.experts, {i32}, 2);
    operands.shaped("weights", op.weights, {f32}, op.experts.shape());
    operands.shaped("dweights", op.dweights, {f32}, op.experts.shape());
    operands.shaped("dlogits", op.dlogits, operands.activations(), op.probabilities.shape());
    operands.optional("counts", op.counts, {i32}, {op.probabilities.size(0)});
    operands.optional("balance", op.balance, {f32}, {op.probabilities.size(1)});
}

void Backend::check(const BalanceLoss& op) const {
    const Operands operands("balance_loss", device());
    operands.ranked("choices", op.choices, {f64}, 2);
    operands.shaped("probability_sums", op.probability_sums, {f64}, {op.choices.size(1)});
    operands.shaped("loss", op.loss, {f64}, {1});
    operands.shaped("balance", op.balance, {f32}, {op.choices.size(1)});
}

void Backend::check(const SortByExpert& op) const {
    const Operands operands("sort_by_expert", device());
    operands.ranked("experts", op.experts, {i32}, 2);
    operands.ranked("offsets", op.offsets, {i32}, 1);
    operands.shaped("row_of_slot", op.row_of_slot, {i32}, {op.experts.numel()});
    operands.shaped("slot_of_row", op.slot_of_row, {i32}, {op.experts.numel()});
}

void Backend::check(const TokensToRows& op) const {
    const Operands operands("tokens_to_rows", device());
    operands.ranked("x", op.x, operands.activations(), 2);
    operands.ranked("slot_of_row", op.slot_of_row, {i32}, 1);
    operands.shaped("rows", op.rows, {op.x.dtype()}, {op.slot_of_row.size(0), op.x.size(1)});
    operands.holds(op.x.size(0) == 0 || op.slot_of_row.size(0) % op.x.size(0) == 0,
                   "tokens have unequal numbers of slots");
}

void Backend::check(const RowsToTokens& op) const {
    const Operands operands("rows_to_tokens", device());
    operands.ranked("rows", op.rows, operands.activations(), 2);
    operands.ranked("y", op.y, {op.rows.dtype()}, 2);
    operands.shaped("row_of_slot", op.row_of_slot, {i32}, {op.rows.size(0)});
    operands.holds(op.y.size(1) == op.rows.size(1), "rows and y differ in width");
    operands.holds(op.y.size(0) == 0 || op.rows.size(0) % op.y.size(0) == 0,
                   "tokens have unequal numbers of slots");
    if (op.weights) operands.holds(op.weights.numel() == op.rows.size(0), "there is not one weight per slot");
}

void Backend::check(const WeightRows& op) const {
    const Operands operands("weight_rows", device());
    operands.ranked("activated", op.activated, operands.activations(), 2);
    operands.shaped("dactivated", op.dactivated, {op.activated.dtype()}, op.activated.shape());
    operands.ranked("dy", op.dy, {op.activated.dtype()}, 2);
    operands.shaped("slot_of_row", op.slot_of_row, {i32}, {op.activated.size(0)});
    operands.ranked("weights", op.weights, {f32}, 2);
    operands.shaped("dweights", op.dweights, {f32}, op.weights.shape());
    operands.holds(op.weights.numel() == op.activated.size(0), "there is not one weight per slot");
}

void Backend::check(const GroupedGemm& op) const {
    const Operands operands("grouped_gemm", device());
    operands.ranked("a", op.a, operands.activations(), 2);
    operands.ranked("b", op.b, {op.a.dtype()}, 2);
    operands.ranked("c", op.c, operands.activations(), 2);
    operands.ranked("offsets", op.offsets, {i32}, 1);
    const std::int64_t experts = op.offsets.size(0) - 1;
    const Tensor& stacked = op.use == GroupedGemm::Use::weight_gradient ? op.c : op.b;
    operands.holds(experts >= 1 && stacked.size(0) % experts == 0, "the experts' matrices differ in height");
    operands.holds(!op.accumulate || op.use == GroupedGemm::Use::weight_gradient,
                   "only weight gradients accumulate");
}

}  // namespace drover
