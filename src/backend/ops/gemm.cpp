#include "backend/ops/gemm.h"

#include "backend/ops/check_and_cost.h"

namespace drover {
namespace {

std::string_view name_of_product(bool transpose_a, bool transpose_b) {
    if (transpose_a) return "gemm weight gradient";
    return transpose_b ? "gemm forward" : "gemm data gradient";
}

}  // namespace

void Gemm::check(const Operands& operands) const {
    operands.ranked("a", a, operands.activations(), 2);
    const DType dtype = a.dtype();
    operands.ranked("b", b, {dtype}, 2);
    const std::int64_t rows = a.size(transpose_a ? 1 : 0), inner = a.size(transpose_a ? 0 : 1);
    const std::int64_t columns = b.size(transpose_b ? 0 : 1);
    operands.shaped("b", b, {dtype}, transpose_b ? Shape{columns, inner} : Shape{inner, columns});
    operands.shaped("c", c, {dtype, f32}, {rows, columns});
    operands.optional("bias", bias, {dtype, f32}, {columns});
}

OperationCost Gemm::cost() const {
    const double inner = static_cast<double>(a.size(transpose_a ? 0 : 1));
    return {.name = name_of_product(transpose_a, transpose_b),
            .flops = 2 * inner * static_cast<double>(c.numel()),
            .bytes = bytes_of({a, b, c, bias, accumulate ? c : Tensor()}),
            .arithmetic = a.dtype()};
}

void BiasGradient::check(const Operands& operands) const {
    operands.ranked("dy", dy, operands.activations(), 2);
    operands.shaped("dbias", dbias, {dy.dtype(), f32}, {dy.size(1)});
}

OperationCost BiasGradient::cost() const {
    return memory_bound("bias gradient", {dy, accumulate ? dbias : Tensor()}, {dbias});
}

}  // namespace drover
