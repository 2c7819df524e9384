#pragma once

#include "model/adapted_product.h"

namespace drover {

/// A pre-norm decoder block: h = x + attention(norm(x)); out = h + feed_forward(norm(h)).
///
/// The last addition is left to the norm that follows (the next block's first norm, or the head's), which
/// does it while reading the residual stream. So forward takes the stream and the branch that is still to be
/// added, and returns its own branch.
class DecoderBlock {
  public:
    /// `index`: which block of the model it is.
    DecoderBlock(const BlockContext& context, UnitTensors weights, const BlockActivations& activations,
                 int index)
        : c_(context), w_(weights), a_(activations), index_(index) {}

    /// `stream` [held,H] is the residual before the block and `branch` [held,H] what must still be added to
    /// it. Both absent: a.residual already holds the block's input. Returns the branch to be added to
    /// a.mid_residual.
    Tensor forward(const Tensor& stream, const Tensor& branch) const;

    /// `dresidual` [held,H] holds the gradient of the block's output and becomes that of its input.
    /// Recomputes what the policy dropped. Overwrites gate_up.
    void backward(const UnitGradients& gradients, const Tensor& dresidual, Recompute policy,
                  BackwardPart part) const;
    /// The rest after a backward of the input. Nothing is recomputed.
    void weight_gradients(const UnitGradients& gradients) const;

  private:
    void first_norm(const Tensor& stream, const Tensor& branch) const;
    /// attention_normed → its branch [held,H]. Without `attends` attended is there already.
    Tensor attention(bool attends) const;
    void norm_heads() const;       ///< q and k of qkv → query_key; does nothing without head norms
    void attend() const;           ///< q and k, rotated, and v → attended
    void attend_to_cache() const;  ///< the same, with the past that the cache holds
    /// Rotates q and k by the tokens' positions, in place.
    void rotate(const Tensor& x, bool back = false) const;
    void second_norm(const Tensor& branch) const;
    /// Multiplies the experts' input, or its gradient, [held,H], by this micro-batch's noise; does nothing
    /// without noise.
    void jitter(const Tensor& x) const;
    Scope feed_forward_scope() const;
    /// Calls use(feed-forward) with the kind that this block has.
    template <class Use>
    auto with_feed_forward(const Use& use) const;

    AdaptedProduct product(BlockStorage::Index weight) const { return {c_, w_, a_, weight, index_}; }

    /// Recomputes what the policy dropped, except what the gradient operations recompute themselves.
    void recompute(Recompute policy) const;
    void feed_forward_backward(const UnitGradients& gradients, const Tensor& dresidual, Recompute policy,
                               BackwardPart part) const;
    void attention_backward(const UnitGradients& gradients, const Tensor& dresidual, Recompute policy,
                            BackwardPart part) const;
    void attention_output_gradient(const UnitGradients& gradients, const Tensor& dy) const;
    void qkv_gradient(const UnitGradients& gradients, const Tensor& dqkv) const;
    void qkv_adapter_gradients(const UnitGradients& gradients, const Tensor& dqkv) const;
    /// The gradients of normed q and k, in scratch.dqkv, become those of q and k. Does nothing without head
    /// norms.
    void norm_heads_backward(const UnitGradients& gradients, const Tensor& dqkv) const;

    /// dresidual in the compute dtype, for all tokens of the micro-batch; in `kept` if that is there.
    Tensor branch_gradient(const Tensor& dresidual, const Tensor& kept) const;

    const BlockContext& c_;
    UnitTensors w_;
    const BlockActivations& a_;
    int index_;
};

}  // namespace drover
