#pragma once

#include <vector>

#include "model/block_context.h"

namespace drover {

/// A block's product y = x · weightᵀ (+ bias) with the adapters of the weight, if it has any:
/// t = dropout(x) · Aᵀ · scale, y = t · Bᵀ + x · weightᵀ. The weight's leaves are parts of its rows, and each
/// may have its own adapter: one product makes all their t, and each has its own B.
///
/// The adapter's part of y is written first, and the large product adds to it: so it takes no pass over y of
/// its own. Likewise in backward.
class AdaptedProduct {
  public:
    /// `block`: which block of the model it is.
    AdaptedProduct(const BlockContext& context, UnitTensors weights, const BlockActivations& activations,
                   BlockStorage::Index weight, int block);

    /// x [N,in] → y [N,out]. Keeps t for backward.
    void forward(const Tensor& x, const Tensor& y, const Tensor& bias) const;
    /// dy [N,out] → dx [N,in]. Leaves the gradient of t in scratch memory for adapter_gradients().
    void data_gradient(const Tensor& dy, const Tensor& dx) const;
    /// The gradients of A and B, after data_gradient() and before that of another product. Does nothing
    /// without adapters.
    void adapter_gradients(const UnitGradients& gradients, const Tensor& dy, const Tensor& x) const;
    /// The gradients of the weight itself and of the bias in `bias`, if these are trained.
    void weight_gradients(const UnitGradients& gradients, const Tensor& dy, const Tensor& x,
                          BlockStorage::Index bias) const;
    bool has_adapters() const { return static_cast<bool>(a()); }

  private:
    /// Rows of the weight that are a leaf, and its adapter.
    struct Part {
        Range rows;
        Tensor b;             ///< [rows,r]; absent: none
        Range ranks;          ///< its columns of t
        float scale = 1;
        BlockStorage::Index b_storage;
    };

    const Tensor& weight() const { return w_[storages_.weight]; }
    const Tensor& a() const { return w_[storages_.a]; }
    std::vector<Part> parts() const;
    void scale_parts(const std::vector<Part>& parts, const Tensor& t) const;
    bool drops() const;
    /// Drops elements of x [N,in] into y, which may be x.
    void drop(const Tensor& x, const Tensor& y) const;
    /// What A is multiplied with: x, or what dropout leaves of it.
    Tensor adapter_input(const Tensor& x) const;

    const BlockContext& c_;
    UnitTensors w_;
    const BlockActivations& a_;
    const AdapterStorages& storages_;
    AdaptedMatrix matrix_;
    int block_;
};

}  // namespace drover
