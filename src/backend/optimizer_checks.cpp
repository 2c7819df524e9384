#include "backend/backend.h"
#include "backend/operands.h"

namespace drover {
namespace {

void check_scalars(const Operands& operands, const Tensor& scalars) {
    operands.shaped("scalars", scalars, {f32}, {StepScalar::count});
}

/// Packed, and as many elements as the leaf's parameter.
template <class Leaf>
void same_elements(const Operands& operands, const Leaf& leaf, std::string_view name, const Tensor& tensor,
                   Types types) {
    operands.typed(name, tensor, types);
    operands.packed(name, tensor);
    operands.holds(tensor.numel() == leaf.param.numel(),
                   fmt::format("{} is {}, but param is {}", name, tensor.text(), leaf.param.text()));
}

/// What the leaves of all updates have in common.
template <class Leaf>
void check_leaf(const Operands& operands, const Leaf& leaf, const UpdateRounding& rounding) {
    same_elements(operands, leaf, "param", leaf.param, operands.activations());
    same_elements(operands, leaf, "gradient", leaf.gradient, operands.activations());
    if (leaf.master) same_elements(operands, leaf, "master", leaf.master, {f32});
    if (!rounding.stochastic) return;
    operands.holds(leaf.param.dtype() == DType::bf16 && !leaf.master,
                   "stochastic rounding of a parameter that is not bf16 or has a master copy");
    const std::int64_t columns = leaf.param.rank() == 2 ? leaf.param.size(1) : 1;
    operands.holds(leaf.place.row_begin >= 0 && leaf.place.column_begin >= 0 &&
                       leaf.place.column_begin + columns <= leaf.place.columns,
                   fmt::format("param is {}, which does not fit its place from column {} of {}",
                               leaf.param.text(), leaf.place.column_begin, leaf.place.columns));
}

template <class Operation>
void check_moment_leaves(const Operands& operands, const Operation& op, bool moment_is_optional) {
    check_scalars(operands, op.scalars);
    for (const MomentLeaf& leaf : op.leaves) {
        check_leaf(operands, leaf, op.rounding);
        if (leaf.moment || !moment_is_optional)
            same_elements(operands, leaf, "moment", leaf.moment, operands.activations());
    }
}

template <class Operation>
void check_adafactor_leaves(const Operands& operands, const Operation& op, const UpdateRounding& rounding) {
    check_scalars(operands, op.scalars);
    for (const AdafactorLeaf& leaf : op.leaves) {
        check_leaf(operands, leaf, rounding);
        operands.shaped("gradient", leaf.gradient, operands.activations(), leaf.param.shape());
        operands.shaped("squares", leaf.squares, {f64}, {1});
        operands.holds(leaf.clipped_elements > 0, "nothing is clipped together");
        if (leaf.param.rank() == 1) {
            operands.shaped("means", leaf.means, {f32}, leaf.param.shape());
        } else {
            operands.ranked("param", leaf.param, operands.activations(), 2);
            operands.shaped("rows", leaf.rows, {f32}, {leaf.param.size(0)});
            operands.shaped("columns", leaf.columns, {f32}, {leaf.param.size(1)});
        }
    }
}

}  // namespace

void Backend::check(const SumOfSquares& op) const {
    const Operands operands("sum_of_squares", device());
    for (const Tensor& tensor : op.tensors) {
        operands.typed("tensors[…]", tensor, operands.activations());
        operands.packed("tensors[…]", tensor);
    }
    operands.shaped("sums", op.sums, {f64}, {static_cast<std::int64_t>(op.tensors.size())});
}

void Backend::check(const ClipFactor& op) const {
    const Operands operands("clip_factor", device());
    operands.ranked("sums", op.sums, {f64}, 1);
    check_scalars(operands, op.scalars);
    operands.optional("loss", op.loss, {f64}, {1});
    operands.holds(op.gradient_scale > 0, "the gradients' scale is not positive");
}

void Backend::check(const AdamW& op) const {
    const Operands operands("adamw", device());
    check_scalars(operands, op.scalars);
    for (const AdamWLeaf& leaf : op.leaves) {
        check_leaf(operands, leaf, op.rounding);
        same_elements(operands, leaf, "exp_avg", leaf.exp_avg, operands.activations());
        same_elements(operands, leaf, "exp_avg_sq", leaf.exp_avg_sq, operands.activations());
    }
}

void Backend::check(const Sgd& op) const {
    check_moment_leaves(Operands("sgd", device()), op, true);
}

void Backend::check(const Adagrad& op) const {
    check_moment_leaves(Operands("adagrad", device()), op, false);
}

void Backend::check(const Rmsprop& op) const {
    check_moment_leaves(Operands("rmsprop", device()), op, false);
}

void Backend::check(const AdafactorSums& op) const {
    check_adafactor_leaves(Operands("adafactor_sums", device()), op, {});
}

void Backend::check(const AdafactorFactors& op) const {
    const Operands operands("adafactor_factors", device());
    check_scalars(operands, op.scalars);
    for (const AdafactorMatrix& matrix : op.matrices) {
        operands.ranked("row_sums", matrix.row_sums, {f32}, 1);
        operands.ranked("column_sums", matrix.column_sums, {f32}, 1);
        operands.shaped("row_means", matrix.row_means, {f32}, matrix.row_sums.shape());
        operands.shaped("column_means", matrix.column_means, {f32}, matrix.column_sums.shape());
    }
}

void Backend::check(const AdafactorSquares& op) const {
    check_adafactor_leaves(Operands("adafactor_squares", device()), op, {});
}

void Backend::check(const AdafactorUpdate& op) const {
    check_adafactor_leaves(Operands("adafactor_update", device()), op, op.rounding);
}

}  // namespace drover
