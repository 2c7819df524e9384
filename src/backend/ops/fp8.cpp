#include "backend/ops/fp8.h"

#include <algorithm>

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
    operands.holds(groups >= 1 && x.size(0) % groups == 0, "the groups differ in height");
    if (offsets) {
        operands.ranked("offsets", offsets, {i32}, 1);
        operands.holds(groups == 1 && offsets.size(0) >= 2, "rows of experts are one group");
    }
    if (!transposed) return;
    operands.ranked("transposed", transposed, {f8_type}, 2);
    operands.packed("transposed", transposed);
    const std::int64_t rows = transposed.size(0), columns = transposed.size(1);
    const bool wide_enough = offsets      ? columns == expert_columns(x.size(0), offsets.size(0) - 1)
                             : groups > 1 ? columns == x.size(0) / groups
                                          : columns >= x.size(0);
    operands.holds(rows == groups * x.size(1) && wide_enough && columns % 16 == 0,
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

void GroupedFp8Gemm::check(const Operands& operands) const {
    operands.ranked("a", a, {f8_type}, 2);
    operands.shaped("b", b, {f8_type}, {b.size(0), a.size(1)});
    operands.packed("a", a);
    operands.packed("b", b);
    operands.ranked("c", c, operands.activations(), 2);
    operands.shaped("scale_a", scale_a, {f32}, {1});
    operands.shaped("scale_b", scale_b, {f32}, {1});
    operands.ranked("offsets", offsets, {i32}, 1);
    const std::int64_t experts = offsets.size(0) - 1;
    const bool makes_weights = use == Use::weight_gradient;
    operands.holds(experts >= 1 && (makes_weights ? c : b).size(0) % experts == 0,
                   "the experts' matrices differ in height");
    const std::int64_t rows = makes_weights ? experts * a.size(0) : a.size(0),
                       columns = makes_weights ? b.size(0) : b.size(0) / experts;
    operands.shaped("c", c, {c.dtype()}, {rows, columns});
    operands.holds(a.size(1) % (makes_weights ? expert_alignment : 16) == 0 && columns % 16 == 0,
                   "operands are not aligned");
}

OperationCost GroupedFp8Gemm::cost() const {
    constexpr std::string_view names[] = {"fp8 expert gemm forward", "fp8 expert gemm data gradient",
                                          "fp8 expert gemm weight gradient"};
    // Of a weight gradient's rows, those that fill experts up do not count. Their number is not known
    // exactly.
    const std::int64_t filled = (offsets.size(0) - 1) * (expert_alignment - 1);
    const std::int64_t depth =
        use == Use::weight_gradient ? std::max<std::int64_t>(a.size(1) - filled, 1) : a.size(1);
    const double of_each = use == Use::weight_gradient
                               ? static_cast<double>(a.size(0)) * static_cast<double>(b.size(0))
                               : static_cast<double>(c.numel());
    return {.name = names[static_cast<std::size_t>(use)],
            .flops = 2 * static_cast<double>(depth) * of_each,
            .bytes = bytes_of({a, b, c, accumulate ? c : Tensor()}),
            .arithmetic = a.dtype()};
}

}  // namespace drover
