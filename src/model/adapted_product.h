#pragma once

#include <vector>

#include "core/range.h"
#include "model/weight_product.h"

namespace drover {

/// A block's product y = x · weightᵀ (+ bias) with the adapters of the weight, if it has any:
/// t = scale · dropout(x) · Aᵀ, y = t · Bᵀ + x · weightᵀ. The weight's leaves are parts of its rows, and each
/// may have its own adapter: one product makes all their t, and each has its own B. With experts these are
/// grouped products, and rows are slots sorted by expert.
///
/// The adapter's part of y is written first, and the large product adds to it, so it takes no pass over y of
/// its own. Likewise in backward.
///
/// With DoRA, y's columns are multiplied by magnitude / ‖row of weight + scale · B · A‖ before the bias is
/// added. The length of the row counts as a constant in backward, as in PEFT.
class AdaptedProduct {
  public:
    /// `block`: which block of the model it is. `copy`, if present, is used instead of the stored weight.
    AdaptedProduct(const BlockContext& context, UnitTensors weights, const BlockActivations& activations,
                   BlockStorage::Index weight, int block, const Tensor& copy = {});

    bool has_adapters() const { return static_cast<bool>(a()); }

    /// x [N,in] → y [N,out]. Keeps what backward needs.
    void forward(const Tensor& x, const Tensor& y, const Tensor& bias = {}) const;

    /// First of a backward, once for every dy [N,out]: the gradient of t, in scratch memory until another
    /// product's backward begins. Returns what to pass to the other functions as dy: dy itself, or, with
    /// DoRA, its scaled columns, in `scaled`, which may be dy. DoRA also needs y and the bias of forward, and
    /// writes the gradients of its magnitudes.
    Tensor begin_backward(const UnitGradients& gradients, const Tensor& dy, BackwardPart of_backward,
                          const Tensor& y, const Tensor& bias, const Tensor& scaled) const;
    /// The same without DoRA.
    void begin_backward(const UnitGradients& gradients, const Tensor& dy, BackwardPart of_backward) const;
    /// Before weight_gradient(), where it comes later than the rest of backward.
    void begin_weight_gradient(const UnitGradients& gradients, const Tensor& dy) const;
    /// dy [N,out] → dx [N,in].
    void data_gradient(const Tensor& dy, const Tensor& dx) const;
    /// The gradients of A and B.
    void adapter_gradients(const UnitGradients& gradients, const Tensor& dy, const Tensor& x) const;
    /// The gradient of the weight itself, if it is trained.
    void weight_gradient(const UnitGradients& gradients, const Tensor& dy, const Tensor& x) const;

  private:
    /// Rows of the weight that are a leaf, and its adapter.
    struct Part {
        Range rows;         ///< columns of y; of experts, of one expert
        Range ranks;        ///< its columns of t
        Tensor b;           ///< [rows,r]; absent: none
        Tensor magnitudes;  ///< [rows], with DoRA
        BlockStorage::Index b_storage;
        BlockStorage::Index magnitude_storage;
        float scale = 1;

        Tensor of(const Tensor& y) const { return y.columns(rows.begin, rows.count); }
        Tensor of_t(const Tensor& t) const { return t.columns(ranks.begin, ranks.count); }
        Tensor of_vector(const Tensor& x) const { return x ? x.rows(rows.begin, rows.count) : x; }
    };
    using Use = GroupedGemm::Use;

    const Tensor& a() const { return w_[storages_.a]; }
    std::vector<Part> parts() const;
    /// A product, of all experts if the weight is theirs.
    void multiply(Use use, const Tensor& left, const Tensor& right, const Tensor& result,
                  bool accumulate) const {
        product_.multiply(use, left, right, result, accumulate);
    }
    void adapters_begin_backward(const Tensor& dy) const;
    bool is_trained(const UnitGradients& gradients) const {
        return static_cast<bool>(gradients.tensors[storages_.weight]);
    }
    void scale_parts(const std::vector<Part>& parts, const Tensor& t) const;
    /// What the large product adds to where a leaf has no adapter: the bias, or zeros.
    void start_without_adapter(const Part& part, const Tensor& y, const Tensor& bias) const;
    bool drops() const;
    /// Drops elements of x [N,in] into y, which may be x.
    void drop(const Tensor& x, const Tensor& y) const;
    /// What A is multiplied with: x, or what dropout leaves of it.
    Tensor adapter_input(const Tensor& x) const;
    /// [rows] f32: what the columns of a part are multiplied by.
    Tensor factors(const Part& part) const;
    void make_factors(const Part& part) const;

    const BlockContext& c_;
    UnitTensors w_;
    const BlockActivations& a_;
    const AdapterStorages& storages_;
    AdaptedMatrix matrix_;
    int block_;
    Tensor weight_;
    WeightProduct product_;
};

}  // namespace drover
