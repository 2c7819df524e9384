#pragma once

#include "backend/ops/operands.h"
#include "backend/ops/operation.h"

/// Helpers for the checks and costs of operations. Only the .cpp files of this folder include it.
namespace drover {

inline constexpr DType f32 = DType::f32, f64 = DType::f64, i32 = DType::i32;
inline constexpr Types any_precision = {DType::f32, DType::bf16, DType::f16};

/// Bytes of all that are present.
double bytes_of(std::initializer_list<Tensor> tensors);

/// The cost of an operation that memory bounds.
OperationCost memory_bound(std::string_view name, double bytes);
OperationCost memory_bound(std::string_view name, std::initializer_list<Tensor> read,
                           std::initializer_list<Tensor> written);

}  // namespace drover
