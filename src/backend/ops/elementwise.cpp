#include "backend/ops/elementwise.h"

#include "backend/ops/check_and_cost.h"

namespace drover {

void Fill::check(const Operands& operands) const {
    operands.typed("x", x, {x.dtype()});
}

OperationCost Fill::cost() const {
    return memory_bound("fill", {}, {x});
}

void Cast::check(const Operands& operands) const {
    operands.typed("from", from, any_precision);
    operands.shaped("to", to, any_precision, from.shape());
    operands.holds(to.rank() <= 2 || (from.packed() && to.packed()),
                   "strided operands of more than two dimensions");
}

OperationCost Cast::cost() const {
    return memory_bound("cast", {from}, {to});
}

void Scale::check(const Operands& operands) const {
    operands.ranked("x", x, any_precision, 2);
}

OperationCost Scale::cost() const {
    return memory_bound("scale", {x}, {x});
}

void Transpose::check(const Operands& operands) const {
    operands.ranked("x", x, any_precision, 2);
    operands.shaped("y", y, any_precision, {x.size(1), x.size(0)});
}

OperationCost Transpose::cost() const {
    return memory_bound("transpose", {x, accumulate ? y : Tensor()}, {y});
}

void Add::check(const Operands& operands) const {
    operands.typed("into", into, any_precision);
    operands.shaped("x", x, any_precision, into.shape());
    operands.packed("into", into);
    operands.packed("x", x);
}

OperationCost Add::cost() const {
    return memory_bound("add", {into, x}, {into});
}

void Sum::check(const Operands& operands) const {
    operands.ranked("x", x, {f32, f64}, 1);
    operands.shaped("out", out, {f64}, {1});
}

OperationCost Sum::cost() const {
    return memory_bound("sum", {x}, {out});
}

}  // namespace drover
