#include "backend/ops/rms_norm.h"

#include "backend/ops/check_and_cost.h"

namespace drover {

void RmsNorm::check(const Operands& operands) const {
    operands.ranked("y", y, operands.activations(), 2);
    const DType dtype = y.dtype();
    const Shape shape = y.shape();
    operands.optional("x", x, {dtype}, shape);
    operands.shaped("residual_in", residual_in, {dtype, f32}, shape);
    if (x) operands.shaped("residual_out", residual_out, {residual_in.dtype()}, shape);
    operands.shaped("weight", weight, {dtype, f32}, {shape[1]});
    operands.shaped("rstd", rstd, {f32}, {shape[0]});
    operands.optional("maximum", maximum, {f32}, {1});
}

OperationCost RmsNorm::cost() const {
    return memory_bound("norm", {x, residual_in, weight}, {x ? residual_out : Tensor(), y, rstd});
}

void RmsNormBackward::check(const Operands& operands) const {
    operands.ranked("dy", dy, operands.activations(), 2);
    const DType dtype = dy.dtype();
    const Shape shape = dy.shape();
    operands.shaped("residual_out", residual_out, {dtype, f32}, shape);
    operands.shaped("weight", weight, {dtype, f32}, {shape[1]});
    operands.shaped("rstd", rstd, {f32}, {shape[0]});
    operands.optional("dresidual_out", dresidual_out, {residual_out.dtype()}, shape);
    operands.shaped("dresidual", dresidual, {residual_out.dtype()}, shape);
    operands.optional("dweight", dweight, operands.activations(), {shape[1]});
    operands.optional("y", y, {dtype}, shape);
}

OperationCost RmsNormBackward::cost() const {
    return memory_bound("norm backward", {dy, residual_out, weight, rstd, dresidual_out},
                        {dresidual, dweight, y});
}

}  // namespace drover
