#include "backend/ops/head_norm.h"

#include <fmt/format.h>

#include "backend/ops/check_and_cost.h"

namespace drover {
namespace {

/// Checks what both directions share: heads of a size that the kernels hold in registers, and their weight.
void check_heads(const Operands& operands, std::string_view name, const Tensor& heads, const Tensor& weight) {
    operands.ranked(name, heads, operands.activations(), 3);
    const std::int64_t size = heads.size(2);
    operands.holds(size >= 2 && size <= HeadNorm::largest_head && size % 2 == 0,
                   fmt::format("{} is {}, expected an even head size from 2 to {}", name, heads.text(),
                               HeadNorm::largest_head));
    operands.holds(heads.size(1) > 0, fmt::format("{} is {}, without heads", name, heads.text()));
    operands.shaped("weight", weight, {heads.dtype(), f32}, {size});
}

}  // namespace

void HeadNorm::check(const Operands& operands) const {
    check_heads(operands, "x", x, weight);
    operands.shaped("y", y, {x.dtype()}, x.shape());
}

OperationCost HeadNorm::cost() const {
    return memory_bound("head norm", {x, weight}, {y});
}

void HeadNormBackward::check(const Operands& operands) const {
    check_heads(operands, "dy", dy, weight);
    operands.shaped("x", x, {dy.dtype()}, dy.shape());
    operands.shaped("dx", dx, {dy.dtype()}, dy.shape());
    operands.optional("dweight", dweight, operands.activations(), weight.shape());
}

OperationCost HeadNormBackward::cost() const {
    return memory_bound("head norm backward", {dy, x, weight}, {dx, dweight});
}

}  // namespace drover
