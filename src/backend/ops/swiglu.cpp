#include "backend/ops/swiglu.h"

#include "backend/ops/check_and_cost.h"

namespace drover {

void Swiglu::check(const Operands& operands) const {
    operands.ranked("y", y, operands.activations(), 2);
    operands.shaped("gate_up", gate_up, {y.dtype()}, {y.size(0), 2 * y.size(1)});
    operands.optional("maximum", maximum, {f32}, {1});
}

OperationCost Swiglu::cost() const {
    return memory_bound("swiglu", {gate_up}, {y});
}

void SwigluBackward::check(const Operands& operands) const {
    operands.ranked("dy", dy, operands.activations(), 2);
    const Shape twice = {dy.size(0), 2 * dy.size(1)};
    operands.shaped("gate_up", gate_up, {dy.dtype()}, twice);
    operands.shaped("dgate_up", dgate_up, {dy.dtype()}, twice);
    operands.optional("y", y, {dy.dtype()}, dy.shape());
    operands.optional("maximum", maximum, {f32}, {1});
}

OperationCost SwigluBackward::cost() const {
    return memory_bound("swiglu backward", {gate_up, dy}, {dgate_up, y});
}

}  // namespace drover
