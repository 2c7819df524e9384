#include "backend/ops/embedding.h"

#include "backend/ops/check_and_cost.h"

namespace drover {

void Embedding::check(const Operands& operands) const {
    operands.ranked("ids", ids, {i32}, 1);
    operands.ranked("weight", weight, operands.activations(), 2);
    operands.shaped("y", y, {weight.dtype(), f32}, {ids.size(0), weight.size(1)});
}

OperationCost Embedding::cost() const {
    const auto rows_read = static_cast<double>(y.numel()) * static_cast<double>(size_of(weight.dtype()));
    return memory_bound("embedding", rows_read + bytes_of({ids, y}));
}

void EmbeddingBackward::check(const Operands& operands) const {
    operands.ranked("ids", ids, {i32}, 1);
    operands.ranked("dweight", dweight, operands.activations(), 2);
    operands.shaped("dy", dy, operands.activations(), {ids.size(0), dweight.size(1)});
}

OperationCost EmbeddingBackward::cost() const {
    return memory_bound("embedding backward", {ids, dy, accumulate ? dweight : Tensor()}, {dweight});
}

}  // namespace drover
