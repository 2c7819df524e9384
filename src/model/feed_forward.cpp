#include "model/feed_forward.h"

namespace drover {

Tensor DenseFeedForward::forward() const {
    gate_and_up();
    c_.run(Swiglu{.gate_up = a_.gate_up, .y = a_.activated});
    c_.run(Gemm::forward(a_.activated, w_[BlockStorage::down], c_.scratch.branch,
                         c_.on_one_rank(w_[BlockStorage::down_bias])));
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

void DenseFeedForward::gate_and_up() const {
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.mlp_normed, c_.scratch.gathered);  // [N,H]
    c_.run(Gemm::forward(x, w_[BlockStorage::gate_up], a_.gate_up, w_[BlockStorage::gate_up_bias]));
}

void DenseFeedForward::recompute(Recompute policy) const {
    if (policy != Recompute::selective) gate_and_up();
}

void DenseFeedForward::down_gradient(const UnitGradients& g, const Tensor& dy) const {
    c_.run(Gemm::weight_gradient(dy, a_.activated, g.tensors[BlockStorage::down], g.accumulate));
    if (const Tensor& dbias = g.tensors[BlockStorage::down_bias])
        c_.run(BiasGradient{.dy = dy, .dbias = dbias, .accumulate = g.accumulate});
}

void DenseFeedForward::gate_up_gradient(const UnitGradients& g) const {
    const Tensor dgate_up = a_.gate_up;
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.mlp_normed, c_.scratch.gathered);  // [N,H]
    c_.run(Gemm::weight_gradient(dgate_up, x, g.tensors[BlockStorage::gate_up], g.accumulate));
    if (const Tensor& dbias = g.tensors[BlockStorage::gate_up_bias])
        c_.run(BiasGradient{.dy = dgate_up, .dbias = dbias, .accumulate = g.accumulate});
}

void DenseFeedForward::weight_gradients(const UnitGradients& g, const Tensor& dy) const {
    down_gradient(g, dy);
    gate_up_gradient(g);
}

Tensor DenseFeedForward::backward(const UnitGradients& g, const Tensor& dy, Recompute policy,
                                  BackwardPart part) const {
    c_.run(Gemm::data_gradient(dy, w_[BlockStorage::down], c_.scratch.dactivated));
    const Tensor dgate_up = a_.gate_up;  // its last use: the gradient takes its place
    c_.run(SwigluBackward{.gate_up = a_.gate_up,
                          .dy = c_.scratch.dactivated,
                          .dgate_up = dgate_up,
                          .y = policy == Recompute::none ? Tensor() : a_.activated});
    if (part == BackwardPart::whole) weight_gradients(g, dy);
    c_.run(Gemm::data_gradient(dgate_up, w_[BlockStorage::gate_up], c_.scratch.branch));
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

}  // namespace drover
