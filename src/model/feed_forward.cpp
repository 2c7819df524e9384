#include "model/feed_forward.h"

namespace drover {

Tensor DenseFeedForward::forward() const {
    gate_and_up();
    c_.run(Swiglu{.gate_up = a_.gate_up, .y = a_.activated});
    down_.forward(a_.activated, c_.scratch.branch, c_.on_one_rank(w_[BlockStorage::down_bias]));
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
    const Tensor dgate_up = a_.gate_up;
    gate_up_.weight_gradients(g, dgate_up, input(), BlockStorage::gate_up_bias);
}

void DenseFeedForward::gate_up_adapter_gradients(const UnitGradients& g) const {
    const Tensor dgate_up = a_.gate_up;
    if (gate_up_.has_adapters()) gate_up_.adapter_gradients(g, dgate_up, input());
}

void DenseFeedForward::weight_gradients(const UnitGradients& g, const Tensor& dy) const {
    down_.weight_gradients(g, dy, a_.activated, BlockStorage::down_bias);
    gate_up_gradient(g);
}

Tensor DenseFeedForward::backward(const UnitGradients& g, const Tensor& dy, Recompute policy,
                                  BackwardPart part) const {
    down_.data_gradient(dy, c_.scratch.dactivated);
    const Tensor dgate_up = a_.gate_up;  // its last use: the gradient takes its place
    c_.run(SwigluBackward{.gate_up = a_.gate_up,
                          .dy = c_.scratch.dactivated,
                          .dgate_up = dgate_up,
                          .y = policy == Recompute::none ? Tensor() : a_.activated});
    down_.adapter_gradients(g, dy, a_.activated);
    if (part == BackwardPart::whole) weight_gradients(g, dy);
    gate_up_.data_gradient(dgate_up, c_.scratch.branch);
    gate_up_adapter_gradients(g);
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

}  // namespace drover
