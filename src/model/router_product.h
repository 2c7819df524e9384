#pragma once

#include "model/block_context.h"

namespace drover {

/// The product of tokens and router, logits = x · routerᵀ, with the router's adapter if it has one: t = scale
/// · dropout(x) · Aᵀ, logits += t · Bᵀ. t is small and made again in backward.
class RouterProduct {
  public:
    RouterProduct(const BlockContext& context, UnitTensors weights, int block)
        : c_(context), w_(weights), block_(block) {}

    /// x [N,H] → logits [N,E] f32.
    void forward(const Tensor& x, const Tensor& logits) const;
    /// The gradients of what is trained, from dlogits [N,E] and x [N,H].
    void weight_gradients(const UnitGradients& gradients, const Tensor& dlogits, const Tensor& x) const;
    /// dx [N,H] += what dlogits [N,E] say of it; after weight_gradients().
    void add_data_gradient(const Tensor& dlogits, const Tensor& dx) const;

  private:
    const Tensor& router() const { return w_[BlockStorage::router]; }
    const Tensor& a() const { return w_[BlockStorage::router_a]; }  ///< [r,H]; absent: no adapter
    const Tensor& b() const { return w_[BlockStorage::router_b]; }  ///< [E,r]
    bool drops() const;
    void drop(const Tensor& x, const Tensor& y) const;
    Tensor dropped(const Tensor& x) const;
    /// Room for t [N,r], and for its gradient.
    Tensor t(std::int64_t tokens) const { return half(tokens, 0); }
    Tensor dt(std::int64_t tokens) const { return half(tokens, 1); }
    Tensor half(std::int64_t tokens, int which) const;
    void make_t(const Tensor& x) const;
    void scale(const Tensor& t) const;

    const BlockContext& c_;
    UnitTensors w_;
    int block_;
};

}  // namespace drover
