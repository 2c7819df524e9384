#include "backend/ops/fp8.h"

#include <algorithm>

#include "backend/ops/check_and_cost.h"

namespace drover {
namespace {

constexpr DType f8_type = DType::f8;

/// A Quantise's or a QuantiseBlocks' transpose, if there is one.
template <class Operation>
void check_transposed(const Operands& operands, const Operation& op) {
    operands.holds(op.groups >= 1 && op.x.size(0) % op.groups == 0, "the groups differ in height");
    if (op.offsets) {
        operands.ranked("offsets", op.offsets, {i32}, 1);
        operands.holds(op.groups == 1 && op.offsets.size(0) >= 2, "rows of experts are one group");
    }
    if (!op.transposed) return;
    operands.ranked("transposed", op.transposed, {f8_type}, 2);
    operands.packed("transposed", op.transposed);
    const std::int64_t rows = op.transposed.size(0), columns = op.transposed.size(1);
    const bool wide_enough = op.offsets      ? columns == expert_columns(op.x.size(0), op.offsets.size(0) - 1)
                             : op.groups > 1 ? columns == op.x.size(0) / op.groups
                                             : columns >= op.x.size(0);
    operands.holds(rows == op.groups * op.x.size(1) && wide_enough && columns % 16 == 0,
                   "transposed has another shape");
}

/// Of a matrix, or of `groups` of them one below the other.
void check_scales(const Operands& operands, std::string_view name, const Tensor& scales, Fp8Scales kind,
                  const Tensor& matrix, std::int64_t groups = 1) {
    operands.shaped(name, scales, {f32}, shape_of_scales(kind, matrix.size(0), matrix.size(1), groups));
    operands.packed(name, scales);
}

/// Of a product's operands, of which b is `groups` matrices.
template <class Operation>
void check_product_scales(const Operands& operands, const Operation& op, std::int64_t groups = 1) {
    const bool in_blocks = op.scales_a != Fp8Scales::one;
    operands.holds(op.scales_a != Fp8Scales::squares && in_blocks == (op.scales_b != Fp8Scales::one) &&
                       !(in_blocks && op.fast),
                   "no such product");
    check_scales(operands, "scale_a", op.scale_a, op.scales_a, op.a);
    check_scales(operands, "scale_b", op.scale_b, op.scales_b, op.b, groups);
}

}  // namespace

Shape shape_of_scales(Fp8Scales scales, std::int64_t rows, std::int64_t columns, std::int64_t groups) {
    const auto blocks = [](std::int64_t numbers) { return (numbers + fp8_block - 1) / fp8_block; };
    switch (scales) {
        case Fp8Scales::rows:
            return {blocks(columns), rows};
        case Fp8Scales::squares:
            return {groups * blocks(rows / groups), (blocks(columns) + 3) / 4 * 4};
        default:
            return {1};
    }
}

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
    check_transposed(operands, *this);
}

OperationCost Quantise::cost() const {
    return memory_bound(transposed ? "quantise, transposed" : "quantise", {x, maximum},
                        {y, transposed, scale});
}

void QuantiseBlocks::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 2);
    operands.holds(x.size(1) % 16 == 0 && x.stride(0) % 8 == 0, "x's rows are not aligned");
    const bool squares = blocks == Fp8Scales::squares;
    operands.holds(blocks != Fp8Scales::one && (squares || groups == 1) && !(squares && offsets),
                   "no such blocks");
    check_transposed(operands, *this);
    operands.holds(!squares || !transposed || transposed.size(1) * groups == x.size(0),
                   "a transpose of squares is not filled up");
    if (y) {
        operands.shaped("y", y, {f8_type}, {rows_of_operand(blocks, x.size(0)), x.size(1)});
        operands.packed("y", y);
        check_scales(operands, "scales", scales, blocks, y, groups);
    }
    if (transposed)
        check_scales(operands, "transposed_scales", transposed_scales, blocks, transposed, groups);
}

OperationCost QuantiseBlocks::cost() const {
    return memory_bound(transposed ? "quantise blocks, transposed" : "quantise blocks", {x},
                        {y, scales, transposed, transposed_scales});
}

void Fp8Transpose::check(const Operands& operands) const {
    operands.ranked("x", x, {f8_type}, 2);
    operands.packed("x", x);
    operands.holds(groups >= 1 && x.size(0) % groups == 0, "the groups differ in height");
    const std::int64_t rows = x.size(0) / groups;
    operands.holds(rows % 16 == 0 && x.size(1) % 16 == 0, "sides must be multiples of 16");
    operands.shaped("y", y, {f8_type}, {groups * x.size(1), rows});
    operands.packed("y", y);
}

OperationCost Fp8Transpose::cost() const {
    return memory_bound("fp8 transpose", {x}, {y});
}

void Fp8Gemm::check(const Operands& operands) const {
    operands.ranked("a", a, {f8_type}, 2);
    operands.shaped("b", b, {f8_type}, {b.size(0), a.size(1)});
    operands.packed("a", a);
    operands.packed("b", b);
    operands.holds(a.size(1) % 16 == 0 && b.size(0) % 16 == 0, "K and N must be multiples of 16");
    operands.ranked("c", c, operands.activations(), 2);
    operands.shaped("c", c, {c.dtype()}, {c.size(0), b.size(0)});
    operands.holds(a.size(0) == rows_of_operand(scales_a, c.size(0)), "a and c differ in height");
    check_product_scales(operands, *this);
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
    operands.ranked("offsets", offsets, {i32}, 1);
    const std::int64_t experts = offsets.size(0) - 1;
    const bool makes_weights = use == Use::weight_gradient;
    operands.holds(experts >= 1 && (makes_weights ? c : b).size(0) % experts == 0,
                   "the experts' matrices differ in height");
    const std::int64_t columns = makes_weights ? b.size(0) : b.size(0) / experts;
    operands.shaped("c", c, {c.dtype()}, {c.size(0), columns});
    operands.holds(
        makes_weights ? c.size(0) == experts * a.size(0) : a.size(0) == rows_of_operand(scales_a, c.size(0)),
        "a and c differ in height");
    check_product_scales(operands, *this, experts);
    operands.holds(scales_b == Fp8Scales::one || (scales_b == Fp8Scales::rows) == makes_weights,
                   "the experts' scales are of another kind");
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
