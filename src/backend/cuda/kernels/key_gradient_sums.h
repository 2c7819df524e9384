#pragma once

#include "backend/cuda/kernels.h"

/// dk and dv of one key/value head of one row, when they are computed in pieces: added in fp32 in the order
/// of the calls, and rounded once.
namespace drover::cuda {

/// dk and dv are [length,head_size], by position in the row; they start as zeros. head_size is a multiple
/// of 8.
struct KeyGradientSums {
    float *dk, *dv;
    std::int64_t length, head_size;
};

/// What some queries contribute to the row's keys from first_key on: packed [keys,head_size].
struct KeyGradientPiece {
    const void *dk, *dv;
    DType dtype;
    std::int64_t first_key, keys;
};

void add_piece(const Launch& launch, const KeyGradientSums& sums, const KeyGradientPiece& piece);

/// Writes a head of dk[N,kv_heads,head_size] and dv from the row's first token on. Their rows are aligned to
/// 16 bytes.
void store_sums(const Launch& launch, const KeyGradientSums& sums, const Tensor& dk, const Tensor& dv,
                std::int64_t first_token, std::int64_t head);

}  // namespace drover::cuda
