#include "backend/ops/fp8.h"

#include "backend/ops/check_and_cost.h"

namespace drover {
namespace {

constexpr DType f8_type = DType::f8;

}  // namespace

void AbsoluteMaximum::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 2);
    operands.shaped("maximum", maximum, {f32}, {1});
}

OperationCost AbsoluteMaximum::cost() const {
    return memory_bound("absolute maximum", {x}, {maximum});
}

void Quantise::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 2);
    operands.shaped("maximum", maximum, {f32}, {1});
    operands.shaped("scale", scale, {f32}, {1});
    operands.optional("y", y, {f8_type}, {x.size(0), x.size(1)});
    if (y) operands.packed("y", y);
    if (!transposed) return;
    operands.ranked("transposed", transposed, {f8_type}, 2);
    operands.packed("transposed", transposed);
    const std::int64_t columns = transposed.size(1);
    operands.holds(transposed.size(0) == x.size(1) && columns >= x.size(0) && columns % 16 == 0,
                   "transposed has another shape");
}

OperationCost Quantise::cost() const {
    return memory_bound(transposed ? "quantise, transposed" : "quantise", {x, maximum},
                        {y, transposed, scale});
}

void Fp8Gemm::check(const Operands& operands) const {
    operands.ranked("a", a, {f8_type}, 2);
    operands.shaped("b", b, {f8_type}, {b.size(0), a.size(1)});
    operands.packed("a", a);
    operands.packed("b", b);
    operands.holds(a.size(1) % 16 == 0 && b.size(0) % 16 == 0, "K and N must be multiples of 16");
    operands.ranked("c", c, operands.activations(), 2);
    operands.shaped("c", c, {c.dtype()}, {a.size(0), b.size(0)});
    operands.shaped("scale_a", scale_a, {f32}, {1});
    operands.shaped("scale_b", scale_b, {f32}, {1});
    operands.optional("bias", bias, {c.dtype(), f32}, {b.size(0)});
}

OperationCost Fp8Gemm::cost() const {
    return {.name = "fp8 gemm",
            .flops = 2 * static_cast<double>(a.size(1)) * static_cast<double>(c.numel()),
            .bytes = bytes_of({a, b, c, bias, accumulate ? c : Tensor()}),
            .arithmetic = a.dtype()};
}

}  // namespace drover
