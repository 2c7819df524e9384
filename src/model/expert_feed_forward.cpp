#include <optional>
#include <utility>

#include "model/feed_forward.h"

namespace drover {
// M = N·W rows are the tokens' slots, sorted by expert.

Tensor ExpertFeedForward::forward() const {
    const Tensor x = input();  // [N,H]
    route(x, true);
    const Tensor& out = c_.scratch.expert_rows;  // [M,H]
    {
        const Scope experts = c_.run.scope("MixtralGmmTop2MLP");
        gate_and_up(x);
        activation();
        down().forward(a_.activated, out);
    }
    c_.run(RowsToTokens{
        .rows = out, .row_of_slot = a_.row_of_slot, .weights = a_.slot_weights, .y = c_.scratch.branch});
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

void ExpertFeedForward::route(const Tensor& x, bool count_choices) const {
    router_.forward(x, c_.scratch.router_logits);  // [N,E] f32
    c_.run(Router{.logits = c_.scratch.router_logits,
                  .counts = c_.batch.counts,
                  .probabilities = a_.router_probabilities,
                  .experts = a_.expert_of_slot,
                  .weights = a_.slot_weights,
                  .choices = count_choices ? c_.choices : Tensor(),
                  .probability_sums = count_choices ? c_.probability_sums : Tensor(),
                  .chosen = c_.chosen});
    c_.run(SortByExpert{.experts = a_.expert_of_slot,
                        .offsets = a_.expert_offsets,
                        .row_of_slot = a_.row_of_slot,
                        .slot_of_row = a_.slot_of_row});
}

void ExpertFeedForward::gate_and_up(const Tensor& x) const {
    const Tensor& rows = c_.scratch.expert_rows;  // [M,H]
    c_.run(TokensToRows{.x = x, .slot_of_row = a_.slot_of_row, .rows = rows});
    gate_up().forward(rows, a_.gate_up);
}

void ExpertFeedForward::activation() const {
    c_.run(Swiglu{.gate_up = a_.gate_up,
                  .y = a_.activated,
                  .maximum = a_.fp8.maximum(AdaptedMatrix::down, Fp8Operand::input)});
}

AdaptedProduct ExpertFeedForward::gate_up() const {
    return {c_, w_, a_, BlockStorage::experts_gate_up, block_, gate_up_weights()};
}

AdaptedProduct ExpertFeedForward::down() const {
    return {c_, w_, a_, BlockStorage::experts_down, block_, down_weights()};
}

Tensor ExpertFeedForward::gate_up_weights() const {
    if (!c_.scratch.stacked_gate_up) return w_[BlockStorage::experts_gate_up];
    c_.run(Cast{.from = w_[BlockStorage::experts_gate_up], .to = c_.scratch.stacked_gate_up});
    return c_.scratch.stacked_gate_up;
}

Tensor ExpertFeedForward::down_weights() const {
    if (!c_.scratch.stacked_down) return w_[BlockStorage::experts_down];
    c_.run(Cast{.from = w_[BlockStorage::experts_down], .to = c_.scratch.stacked_down});
    return c_.scratch.stacked_down;
}

void ExpertFeedForward::recompute(Recompute policy) const {
    const Scope experts = c_.run.scope("MixtralGmmTop2MLP");
    // The routing is kept under every policy: it is small, and recomputing it gives the same.
    if (policy != Recompute::selective) gate_and_up(input());
    // Not left to SwigluBackward as in the dense feed-forward: the gradient of the slots' weights needs it
    // earlier.
    activation();
}

Tensor ExpertFeedForward::backward(const UnitGradients& g, const Tensor& dy, Recompute, BackwardPart) const {
    // At first without the routing weights: ⟨dy · W2, activated⟩ is the gradient of a slot's weight, so the
    // experts' outputs need not be kept.
    std::optional<Scope> experts(std::in_place, c_.run.backend, c_.run.stream, "MixtralGmmTop2MLP");
    const Tensor& rows = c_.scratch.expert_rows;  // [M,H]
    c_.run(TokensToRows{.x = dy, .slot_of_row = a_.slot_of_row, .rows = rows});
    const AdaptedProduct down = this->down(), gate_up = this->gate_up();
    down.begin_backward(g, rows, BackwardPart::input);
    down.data_gradient(rows, c_.scratch.dactivated);
    c_.run(WeightRows{.activated = a_.activated,
                      .dactivated = c_.scratch.dactivated,
                      .dy = rows,
                      .slot_of_row = a_.slot_of_row,
                      .weights = a_.slot_weights,
                      .dweights = c_.scratch.dslot_weights});
    down.begin_backward(g, rows, BackwardPart::weights);  // once more, with the routing weights
    down.adapter_gradients(g, rows, a_.activated);
    down.weight_gradient(g, rows, a_.activated);

    const Tensor dgate_up = a_.gate_up;  // its last use: the gradient takes its place
    c_.run(SwigluBackward{.gate_up = a_.gate_up,
                          .dy = c_.scratch.dactivated,
                          .dgate_up = dgate_up,
                          .maximum = a_.fp8.maximum(AdaptedMatrix::gate_up, Fp8Operand::gradient)});
    const Tensor x = input();  // [N,H]
    gate_up.begin_backward(g, dgate_up, BackwardPart::whole);
    if (gate_up.has_adapters() || g.tensors[BlockStorage::experts_gate_up]) {
        c_.run(TokensToRows{.x = x, .slot_of_row = a_.slot_of_row, .rows = rows});
        gate_up.adapter_gradients(g, dgate_up, rows);
        gate_up.weight_gradient(g, dgate_up, rows);
    }
    gate_up.data_gradient(dgate_up, rows);
    c_.run(RowsToTokens{.rows = rows, .row_of_slot = a_.row_of_slot, .y = c_.scratch.branch});
    experts.reset();

    // The router sees all tokens and all of a slot's gradient on every rank, so its own gradients are whole
    // everywhere, and only one rank may pass them on.
    c_.parallel.axis().all_reduce(c_.run.stream, c_.scratch.dslot_weights, Reduction::sum);
    const Tensor& dlogits = c_.scratch.drouter_logits;  // [N,E]
    c_.run(RouterBackward{.probabilities = a_.router_probabilities,
                          .experts = a_.expert_of_slot,
                          .weights = a_.slot_weights,
                          .dweights = c_.scratch.dslot_weights,
                          .counts = c_.batch.counts,
                          .balance = c_.balance,
                          .dlogits = dlogits});
    router_.weight_gradients(g, dlogits, x);
    if (c_.is_first_rank()) router_.add_data_gradient(dlogits, c_.scratch.branch);
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

}  // namespace drover
