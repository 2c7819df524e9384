#include "model/feed_forward.h"

namespace drover {

Tensor DenseFeedForward::forward() const {
    gate_and_up();
    c_.run(Swiglu{.gate_up = a_.gate_up,
                  .y = a_.activated,
                  .maximum = a_.fp8.maximum(AdaptedMatrix::down, Fp8Operand::input)});
    down_.forward(a_.activated, c_.scratch.branch, c_.on_one_rank(w_[BlockStorage::down_bias]));
    if (a_.mlp_output) c_.run.backend.copy(c_.run.stream, c_.scratch.branch, a_.mlp_output);
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

void DenseFeedForward::gate_and_up() const {
    gate_up_.forward(input(), a_.gate_up, w_[BlockStorage::gate_up_bias]);
}

void DenseFeedForward::recompute(Recompute policy) const {
    if (policy != Recompute::selective) gate_and_up();
}

void DenseFeedForward::gate_up_gradient(const UnitGradients& g) const {
    if (!g.tensors[BlockStorage::gate_up] && !g.tensors[BlockStorage::gate_up_bias]) return;
    gate_up_.weight_gradient(g, dgate_up(), input());
    c_.bias_gradient(g, dgate_up(), BlockStorage::gate_up_bias);
}

void DenseFeedForward::gate_up_adapter_gradients(const UnitGradients& g) const {
    if (gate_up_.has_adapters()) gate_up_.adapter_gradients(g, dgate_up(), input());
}

void DenseFeedForward::down_gradient(const UnitGradients& g, const Tensor& dy) const {
    down_.weight_gradient(g, dy, a_.activated);
    c_.bias_gradient(g, dy, BlockStorage::down_bias);
}

void DenseFeedForward::weight_gradients(const UnitGradients& g, const Tensor& dy) const {
    down_.begin_weight_gradient(g, dy);
    down_gradient(g, dy);
    gate_up_.begin_weight_gradient(g, dgate_up());
    gate_up_gradient(g);
}

Tensor DenseFeedForward::backward(const UnitGradients& g, const Tensor& dy, Recompute policy,
                                  BackwardPart part) const {
    const Tensor ddown = down_.begin_backward(g, dy, part, a_.mlp_output,
                                              c_.on_one_rank(w_[BlockStorage::down_bias]), c_.scratch.scaled);
    down_.data_gradient(ddown, c_.scratch.dactivated);
    c_.run(SwigluBackward{.gate_up = a_.gate_up,
                          .dy = c_.scratch.dactivated,
                          .dgate_up = dgate_up(),
                          .y = policy == Recompute::none ? Tensor() : a_.activated,
                          .maximum = a_.fp8.maximum(AdaptedMatrix::gate_up, Fp8Operand::gradient)});
    down_.adapter_gradients(g, ddown, a_.activated);
    if (part == BackwardPart::whole) down_gradient(g, dy);
    gate_up_.begin_backward(g, dgate_up(), part, a_.gate_up, w_[BlockStorage::gate_up_bias], dgate_up());
    if (part == BackwardPart::whole) gate_up_gradient(g);
    gate_up_.data_gradient(dgate_up(), c_.scratch.branch);
    gate_up_adapter_gradients(g);
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

}  // namespace drover
