#include "backend/ops/experts.h"

#include "backend/ops/check_and_cost.h"
#include "backend/ops/optimizer.h"

namespace drover {
namespace {

std::string_view name_of_use(GroupedGemm::Use use) {
    switch (use) {
        case GroupedGemm::Use::forward:
            return "expert gemm forward";
        case GroupedGemm::Use::data_gradient:
            return "expert gemm data gradient";
        default:
            return "expert gemm weight gradient";
    }
}

}  // namespace

void JitterTokens::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 2);
    operands.packed("x", x);
    operands.shaped("scalars", scalars, {f32}, {StepScalar::count});
    operands.holds(first_token >= 0, "the first token has a negative number");
}

OperationCost JitterTokens::cost() const {
    return memory_bound(added ? "embedding noise" : "jitter", {x}, {x});
}

void Router::check(const Operands& operands) const {
    operands.ranked("logits", logits, {f32}, 2);
    operands.ranked("experts", experts, {i32}, 2);
    const std::int64_t tokens = logits.size(0), count = logits.size(1), slots = experts.size(1);
    operands.shaped("experts", experts, {i32}, {tokens, slots});
    operands.shaped("weights", weights, {f32}, {tokens, slots});
    operands.shaped("probabilities", probabilities, {f32}, logits.shape());
    operands.optional("counts", counts, {i32}, {tokens});
    operands.optional("choices", choices, {f64}, {chosen, count});
    operands.optional("probability_sums", probability_sums, {f64}, {count});
    operands.holds(chosen >= 1 && chosen <= count, "chosen is not between 1 and the number of experts");
    operands.holds(slots == chosen || slots == count, "a token has neither k slots nor one per expert");
    operands.holds(static_cast<bool>(choices) == static_cast<bool>(probability_sums),
                   "choices and probability_sums go together");
    operands.packed("logits", logits);
}

OperationCost Router::cost() const {
    return memory_bound("router", {logits, counts}, {probabilities, experts, weights});
}

void RouterBackward::check(const Operands& operands) const {
    operands.ranked("probabilities", probabilities, {f32}, 2);
    operands.ranked("experts", experts, {i32}, 2);
    operands.shaped("weights", weights, {f32}, experts.shape());
    operands.shaped("dweights", dweights, {f32}, experts.shape());
    operands.shaped("dlogits", dlogits, operands.activations(), probabilities.shape());
    operands.optional("counts", counts, {i32}, {probabilities.size(0)});
    operands.optional("balance", balance, {f32}, {probabilities.size(1)});
}

OperationCost RouterBackward::cost() const {
    return memory_bound("router backward", {probabilities, experts, weights, dweights, counts, balance},
                        {dlogits});
}

void BalanceLoss::check(const Operands& operands) const {
    operands.ranked("choices", choices, {f64}, 2);
    operands.shaped("probability_sums", probability_sums, {f64}, {choices.size(1)});
    operands.shaped("loss", loss, {f64}, {1});
    operands.shaped("balance", balance, {f32}, {choices.size(1)});
}

OperationCost BalanceLoss::cost() const {
    return memory_bound("balance loss", {choices, probability_sums}, {loss, balance});
}

void SortByExpert::check(const Operands& operands) const {
    operands.ranked("experts", experts, {i32}, 2);
    operands.ranked("offsets", offsets, {i32}, 1);
    operands.shaped("row_of_slot", row_of_slot, {i32}, {experts.numel()});
    operands.shaped("slot_of_row", slot_of_row, {i32}, {experts.numel()});
}

OperationCost SortByExpert::cost() const {
    return memory_bound("sort by expert", {experts}, {offsets, row_of_slot, slot_of_row});
}

void TokensToRows::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 2);
    operands.ranked("slot_of_row", slot_of_row, {i32}, 1);
    operands.shaped("rows", rows, {x.dtype()}, {slot_of_row.size(0), x.size(1)});
    operands.holds(x.size(0) == 0 || slot_of_row.size(0) % x.size(0) == 0,
                   "tokens have unequal numbers of slots");
}

OperationCost TokensToRows::cost() const {
    return memory_bound("tokens to expert rows", {rows, slot_of_row}, {rows});
}

void RowsToTokens::check(const Operands& operands) const {
    operands.ranked("rows", rows, operands.activations(), 2);
    operands.ranked("y", y, {rows.dtype()}, 2);
    operands.shaped("row_of_slot", row_of_slot, {i32}, {rows.size(0)});
    operands.holds(y.size(1) == rows.size(1), "rows and y differ in width");
    operands.holds(y.size(0) == 0 || rows.size(0) % y.size(0) == 0, "tokens have unequal numbers of slots");
    if (weights) operands.holds(weights.numel() == rows.size(0), "there is not one weight per slot");
}

OperationCost RowsToTokens::cost() const {
    return memory_bound("expert rows to tokens", {rows, row_of_slot, weights}, {y});
}

void WeightRows::check(const Operands& operands) const {
    operands.ranked("activated", activated, operands.activations(), 2);
    operands.shaped("dactivated", dactivated, {activated.dtype()}, activated.shape());
    operands.ranked("dy", dy, {activated.dtype()}, 2);
    operands.shaped("slot_of_row", slot_of_row, {i32}, {activated.size(0)});
    operands.ranked("weights", weights, {f32}, 2);
    operands.shaped("dweights", dweights, {f32}, weights.shape());
    operands.holds(weights.numel() == activated.size(0), "there is not one weight per slot");
}

OperationCost WeightRows::cost() const {
    return memory_bound("weight expert rows", {activated, dactivated, dy, slot_of_row, weights},
                        {dactivated, dy, dweights});
}

void GroupedGemm::check(const Operands& operands) const {
    operands.ranked("a", a, operands.activations(), 2);
    operands.ranked("b", b, {a.dtype()}, 2);
    operands.ranked("c", c, operands.activations(), 2);
    operands.ranked("offsets", offsets, {i32}, 1);
    const std::int64_t experts = offsets.size(0) - 1;
    const Tensor& stacked = use == GroupedGemm::Use::weight_gradient ? c : b;
    operands.holds(experts >= 1 && stacked.size(0) % experts == 0, "the experts' matrices differ in height");
}

OperationCost GroupedGemm::cost() const {
    const bool weight_gradient = use == GroupedGemm::Use::weight_gradient;
    const double columns = static_cast<double>(weight_gradient ? b.size(1) : c.size(1));
    return {.name = name_of_use(use),
            .flops = 2 * static_cast<double>(a.numel()) * columns,
            .bytes = bytes_of({a, b, c, accumulate ? c : Tensor()}),
            .arithmetic = a.dtype()};
}

}  // namespace drover
