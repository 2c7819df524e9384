#include "backend/ops/adapters.h"

#include "backend/ops/check_and_cost.h"
#include "backend/ops/optimizer.h"

namespace drover {

void DropElements::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 2);
    operands.shaped("y", y, {x.dtype()}, x.shape());
    operands.shaped("scalars", scalars, {f32}, {StepScalar::count});
    operands.optional("number_of_row", number_of_row, {i32}, {x.size(0)});
    operands.holds(first_row >= 0 && first_column >= 0 && first_column + x.size(1) <= columns,
                   "the elements have no place among all rows and columns");
    operands.holds(rate >= 0 && rate < 1, "the rate is not in [0, 1)");
}

OperationCost DropElements::cost() const {
    return memory_bound("dropout", {x, number_of_row}, {y});
}

void AdaptedSquares::check(const Operands& operands) const {
    operands.ranked("weight", weight, operands.activations(), 2);
    operands.ranked("b", b, {weight.dtype()}, 2);
    const std::int64_t rows = weight.size(0), rank = b.size(1);
    operands.shaped("b", b, {weight.dtype()}, {rows, rank});
    operands.shaped("products", products, {f32}, {rows, rank});
    operands.shaped("gram", gram, {f32}, {rank, rank});
    operands.packed("gram", gram);
    operands.shaped("squares", squares, {f32}, {rows});
}

OperationCost AdaptedSquares::cost() const {
    return memory_bound("adapted squares", {weight, b, products, gram}, {squares});
}

void MagnitudeFactors::check(const Operands& operands) const {
    operands.ranked("magnitudes", magnitudes, operands.activations(), 1);
    operands.shaped("squares", squares, {f32}, magnitudes.shape());
    operands.shaped("factors", factors, {f32}, magnitudes.shape());
}

OperationCost MagnitudeFactors::cost() const {
    return memory_bound("magnitude factors", {magnitudes, squares}, {factors});
}

void ScaleColumns::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 2);
    operands.shaped("y", y, {x.dtype()}, x.shape());
    operands.shaped("factors", factors, {f32}, {x.size(1)});
    operands.optional("bias", bias, {x.dtype(), f32}, {x.size(1)});
}

OperationCost ScaleColumns::cost() const {
    return memory_bound("scale columns", {x, factors, bias}, {y});
}

void MagnitudeGradient::check(const Operands& operands) const {
    operands.ranked("dy", dy, operands.activations(), 2);
    operands.shaped("y", y, {dy.dtype()}, dy.shape());
    operands.optional("bias", bias, {dy.dtype(), f32}, {dy.size(1)});
    operands.shaped("magnitudes", magnitudes, {dy.dtype()}, {dy.size(1)});
    operands.shaped("dmagnitudes", dmagnitudes, {dy.dtype(), f32}, {dy.size(1)});
}

OperationCost MagnitudeGradient::cost() const {
    return memory_bound("magnitude gradient", {dy, y, bias, magnitudes, accumulate ? dmagnitudes : Tensor()},
                        {dmagnitudes});
}

}  // namespace drover
