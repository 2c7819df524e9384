#pragma once

#include "model/block_context.h"

namespace drover {

/// The three products of one of a block's matrices: y = x · weightᵀ (+ bias), and the gradients of x and of
/// the weight. With experts these are grouped products, and rows are slots sorted by expert.
///
/// In FP8, operands are quantised first. With one scale for a tensor: x and dy with the largest magnitude
/// that they have now, on all ranks of tensor parallelism together. The weight's maximum is in the Fp8Table
/// from prepare_weights() on, and norms and activations find the maxima of what they make. With scales of
/// blocks, each rank has those of its own part. A frozen weight whose copies are kept
/// (BlockActivations::fp8_weights) is not quantised again, only transposed for the gradient of x.
class WeightProduct {
  public:
    WeightProduct(const BlockContext& context, const BlockActivations& activations, BlockStorage::Index index,
                  const Tensor& weight);

    /// Before a block's forward: clears its table, if it has one, and finds the maxima of its weights.
    static void prepare_weights(const BlockContext& context, UnitTensors weights,
                                const BlockActivations& activations);
    /// Fills the copies of a block's frozen weights; `room` is for a weight. Collective over tensor
    /// parallelism.
    static void copy_weights(const Runner& run, const TensorParallel& parallel, std::int64_t experts,
                             UnitTensors weights, const Fp8Copies& copies, const Fp8Room& room);

    /// x [N,in] → y [N,out].
    void forward(const Tensor& x, const Tensor& y, const Tensor& bias, bool accumulate) const;
    /// Before the next two with this dy [N,out]: makes of it what `part` of backward needs. `trained`:
    /// weight_gradient() will be called. Experts' dy for the weights may be another one than for the input.
    void begin_backward(const Tensor& dy, BackwardPart part, bool trained) const;
    /// dy [N,out] → dx [N,in].
    void data_gradient(const Tensor& dy, const Tensor& dx, bool accumulate) const;
    void weight_gradient(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool accumulate) const;

    /// A product with any matrix in the place of the weight.
    void multiply(GroupedGemm::Use use, const Tensor& left, const Tensor& right, const Tensor& result,
                  bool accumulate) const;

  private:
    bool has_experts() const;
    bool in_fp8() const { return a_.fp8_recipe != Fp8Recipe::none; }
    bool has_one_scale() const { return a_.fp8_recipe == Fp8Recipe::tensorwise; }
    Fp8Scales scales_of(Fp8Operand operand) const { return fp8_scales(a_.fp8_recipe, operand); }
    Scope experts_scope(GroupedGemm::Use use) const;
    /// Whether the operation that makes an operand has put its maximum into the table.
    bool has_maximum(Fp8Operand operand) const;
    /// Completes the maximum of an operand, of which each rank may have other columns.
    void find_maximum(const Tensor& x, Fp8Operand operand, bool ranks_differ) const;
    /// An operand of this size in such a room, or the transpose of one.
    Fp8Matrix place(const Fp8Room& room, Fp8Operand operand, std::int64_t rows, std::int64_t columns) const;
    /// The first operand of a product in such a room, for results of `rows` rows.
    Fp8Matrix place_rows(const Fp8Room& room, Fp8Operand operand, std::int64_t rows,
                         std::int64_t columns) const;
    void quantise(const Tensor& x, Fp8Operand operand, const Fp8Matrix& y, const Fp8Matrix& transposed) const;
    /// The weight in FP8, kept or made in scratch memory, or its transpose, made there.
    Fp8Matrix fp8_weight() const;
    Fp8Matrix transposed_fp8_weight() const;
    void multiply_fp8(GroupedGemm::Use use, const Fp8Matrix& a, const Fp8Matrix& b, const Tensor& c,
                      const Tensor& bias, bool accumulate) const;
    std::int64_t experts() const { return has_experts() ? c_.shape.experts : 1; }
    /// Columns of a transpose that weight gradients are summed over.
    std::int64_t summed_rows(std::int64_t rows) const;
    Tensor maximum(Fp8Operand operand) const;
    /// The transpose of x [rows,columns] that forward keeps for the weight's gradient; absent: it does not.
    Fp8Matrix kept_input(std::int64_t rows, std::int64_t columns) const;

    const BlockContext& c_;
    const BlockActivations& a_;
    BlockStorage::Index index_;
    AdaptedMatrix matrix_;
    Tensor weight_;
};

}  // namespace drover
