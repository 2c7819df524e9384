#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// The rows of a vocabulary.
namespace drover {

/// y = weight[id − first_id], or zeros for an id outside [first_id, first_id + V). Copies bits where the
/// dtypes are the same.
struct Embedding {
    Tensor ids;     ///< [N] i32
    Tensor weight;  ///< [V,H]
    Tensor y;       ///< [N,H], dtype of weight or f32
    std::int64_t first_id = 0;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// dweight[id − first_id] += dy (after zeroing dweight unless accumulate). Ids outside the range and
/// padding_id get nothing. The order of the additions is fixed.
struct EmbeddingBackward {
    Tensor ids;      ///< [N] i32
    Tensor dy;       ///< [N,H]
    Tensor dweight;  ///< [V,H], f32 or bf16; a row's sum is made in fp32 and rounded once
    std::int64_t first_id = 0;
    std::int64_t padding_id = -1;
    bool accumulate = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
