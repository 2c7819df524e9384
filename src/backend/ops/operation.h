#pragma once

#include <string_view>

#include "core/dtype.h"

/// An operation is a small struct of named operands with their shapes beside them, and two functions: check()
/// aborts with the operand's name when an operand is wrong, cost() counts what has to be done. A backend runs
/// it.
namespace drover {

class Operands;

/// The least work that an operation takes: the same count for every device, so that rates compare. An
/// operation is bound by arithmetic when it has flops, and by memory otherwise.
struct OperationCost {
    std::string_view name;          ///< of the kind of operation, for tables and traces; static storage
    double flops = 0;               ///< multiplications and additions of matrix products and attention
    double bytes = 0;               ///< every operand read once and every result written once
    DType arithmetic = DType::f32;  ///< of the flops: the dtype of the factors
};

}  // namespace drover
