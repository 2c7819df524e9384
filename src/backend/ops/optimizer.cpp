#include "backend/ops/optimizer.h"

#include <fmt/format.h>

#include "backend/ops/check_and_cost.h"

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

/// Checks common to the leaves of all updates.
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

/// Parameter and master copy are read and written, the gradient is read.
template <class Leaf>
double update_bytes(const Leaf& leaf) {
    return bytes_of({leaf.param, leaf.param, leaf.gradient, leaf.master, leaf.master});
}

template <class Update>
OperationCost moment_update(std::string_view name, const Update& op) {
    double bytes = 0;
    for (const MomentLeaf& leaf : op.leaves)
        bytes += update_bytes(leaf) + bytes_of({leaf.moment, leaf.moment});
    return memory_bound(name, bytes);
}

}  // namespace

void SumOfSquares::check(const Operands& operands) const {
    for (const Tensor& tensor : tensors) {
        operands.typed("tensors[…]", tensor, operands.activations());
        operands.packed("tensors[…]", tensor);
    }
    operands.shaped("sums", sums, {f64}, {static_cast<std::int64_t>(tensors.size())});
}

OperationCost SumOfSquares::cost() const {
    double bytes = bytes_of({sums});
    for (const Tensor& tensor : tensors) bytes += bytes_of({tensor});
    return memory_bound("gradient norm", bytes);
}

void ClipFactor::check(const Operands& operands) const {
    operands.ranked("sums", sums, {f64}, 1);
    check_scalars(operands, scalars);
    operands.optional("loss", loss, {f64}, {1});
    operands.holds(gradient_scale > 0, "the gradients' scale is not positive");
}

OperationCost ClipFactor::cost() const {
    return memory_bound("clip factor", {sums}, {scalars});
}

void AdamW::check(const Operands& operands) const {
    check_scalars(operands, scalars);
    for (const AdamWLeaf& leaf : leaves) {
        check_leaf(operands, leaf, rounding);
        same_elements(operands, leaf, "exp_avg", leaf.exp_avg, operands.activations());
        same_elements(operands, leaf, "exp_avg_sq", leaf.exp_avg_sq, operands.activations());
    }
}

OperationCost AdamW::cost() const {
    double bytes = 0;
    for (const AdamWLeaf& leaf : leaves)
        bytes += update_bytes(leaf) + 2 * bytes_of({leaf.exp_avg, leaf.exp_avg_sq});
    return memory_bound("adamw", bytes);
}

void Sgd::check(const Operands& operands) const {
    check_moment_leaves(operands, *this, true);
}

OperationCost Sgd::cost() const {
    return moment_update("sgd", *this);
}

void Adagrad::check(const Operands& operands) const {
    check_moment_leaves(operands, *this, false);
}

OperationCost Adagrad::cost() const {
    return moment_update("adagrad", *this);
}

void Rmsprop::check(const Operands& operands) const {
    check_moment_leaves(operands, *this, false);
}

OperationCost Rmsprop::cost() const {
    return moment_update("rmsprop", *this);
}

void AdafactorSums::check(const Operands& operands) const {
    check_adafactor_leaves(operands, *this, {});
}

OperationCost AdafactorSums::cost() const {
    double bytes = 0;
    for (const AdafactorLeaf& leaf : leaves)
        if (leaf.rows) bytes += bytes_of({leaf.gradient, leaf.rows, leaf.columns});
    return memory_bound("adafactor sums", bytes);
}

void AdafactorFactors::check(const Operands& operands) const {
    check_scalars(operands, scalars);
    for (const AdafactorMatrix& matrix : matrices) {
        operands.ranked("row_sums", matrix.row_sums, {f32}, 1);
        operands.ranked("column_sums", matrix.column_sums, {f32}, 1);
        operands.shaped("row_means", matrix.row_means, {f32}, matrix.row_sums.shape());
        operands.shaped("column_means", matrix.column_means, {f32}, matrix.column_sums.shape());
    }
}

OperationCost AdafactorFactors::cost() const {
    double bytes = 0;
    for (const AdafactorMatrix& matrix : matrices)
        bytes += 2 * bytes_of({matrix.row_sums, matrix.column_sums, matrix.row_means, matrix.column_means});
    return memory_bound("adafactor factors", bytes);
}

void AdafactorSquares::check(const Operands& operands) const {
    check_adafactor_leaves(operands, *this, {});
}

OperationCost AdafactorSquares::cost() const {
    double bytes = 0;
    for (const AdafactorLeaf& leaf : leaves)
        bytes += bytes_of({leaf.gradient, leaf.rows, leaf.columns, leaf.means, leaf.means});
    return memory_bound("adafactor squares", bytes);
}

void AdafactorUpdate::check(const Operands& operands) const {
    check_adafactor_leaves(operands, *this, rounding);
}

OperationCost AdafactorUpdate::cost() const {
    double bytes = 0;
    for (const AdafactorLeaf& leaf : leaves)
        bytes += update_bytes(leaf) + bytes_of({leaf.rows, leaf.columns, leaf.means});
    return memory_bound("adafactor update", bytes);
}

}  // namespace drover
