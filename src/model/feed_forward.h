#pragma once

#include "model/adapted_product.h"
#include "model/router_product.h"

namespace drover {

/// The dense feed-forward of a block: down(silu(gate(x)) · up(x)), from mlp_normed to its branch.
class DenseFeedForward {
  public:
    DenseFeedForward(const BlockContext& context, UnitTensors weights, const BlockActivations& activations,
                     int block)
        : c_(context),
          w_(weights),
          a_(activations),
          gate_up_(context, weights, activations, BlockStorage::gate_up, block),
          down_(context, weights, activations, BlockStorage::down, block) {}

    /// Returns the branch [held,H].
    Tensor forward() const;
    /// Recomputes what the policy dropped, except what backward recomputes itself.
    void recompute(Recompute policy) const;
    /// From the gradient of the branch dy [N,H] to that of mlp_normed [held,H]. Overwrites gate_up.
    Tensor backward(const UnitGradients& gradients, const Tensor& dy, Recompute policy,
                    BackwardPart part) const;
    /// The rest after a backward of the input.
    void weight_gradients(const UnitGradients& gradients, const Tensor& dy) const;

  private:
    void gate_and_up() const;  ///< mlp_normed → gate_up
    void down_gradient(const UnitGradients& gradients, const Tensor& dy) const;
    void gate_up_gradient(const UnitGradients& gradients) const;  ///< from dgate_up in its place
    void gate_up_adapter_gradients(const UnitGradients& gradients) const;
    /// The gradient of gate_up, whose last use its making is, unless DoRA needs it once more.
    Tensor dgate_up() const { return c_.scratch.dgate_up ? c_.scratch.dgate_up : a_.gate_up; }
    /// mlp_normed for all tokens [N,H].
    Tensor input() const { return c_.parallel.enter(c_.run.stream, a_.mlp_normed, c_.scratch.gathered); }

    const BlockContext& c_;
    UnitTensors w_;
    const BlockActivations& a_;
    AdaptedProduct gate_up_, down_;
};

/// A mixture of experts instead of the dense feed-forward: every token goes to the experts that the router
/// chooses for it, weighted.
class ExpertFeedForward {
  public:
    ExpertFeedForward(const BlockContext& context, UnitTensors weights, const BlockActivations& activations,
                      int block)
        : c_(context), w_(weights), a_(activations), router_(context, weights, block), block_(block) {}

    Tensor forward() const;
    void recompute(Recompute policy) const;
    /// Always the whole of it: gradients of experts do not wait.
    Tensor backward(const UnitGradients& gradients, const Tensor& dy, Recompute policy,
                    BackwardPart part) const;

  private:
    AdaptedProduct gate_up() const;
    AdaptedProduct down() const;
    /// mlp_normed for all tokens [N,H].
    Tensor input() const { return c_.parallel.enter(c_.run.stream, a_.mlp_normed, c_.scratch.gathered); }
    void route(const Tensor& x, bool count_choices) const;
    void gate_and_up(const Tensor& x) const;
    void activation() const;
    /// The experts' weights; in the mode that stacks them, copied together first.
    Tensor gate_up_weights() const;
    Tensor down_weights() const;

    const BlockContext& c_;
    UnitTensors w_;
    const BlockActivations& a_;
    RouterProduct router_;
    int block_;
};

}  // namespace drover
