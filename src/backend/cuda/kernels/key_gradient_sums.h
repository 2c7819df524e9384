#pragma once

#include "backend/cuda/kernels/sequence_map.h"

/// dk and dv of one key/value head of one sequence, where they are made in pieces: added in fp32 in the order
/// of the calls, and rounded once.
namespace drover::cuda {

/// dk and dv are [row_length,head_size], by position in the sequence; they start as zeros. head_size is a
/// multiple of 8.
struct KeyGradientSums {
    float *dk, *dv;
    std::int64_t head_size;
    std::int32_t sequence;  ///< its index in the map
};

/// What the queries [first_query, end_query) of the sequence give its keys [first_key, end_query): packed
/// [keys,head_size], meaningless where the sequence has no such queries or keys.
struct KeyGradientPiece {
    const void *dk, *dv;
    DType dtype;
    std::int64_t first_query, end_query, first_key;
};

void add_piece(const Launch& launch, const KeyGradientSums& sums, const KeyGradientPiece& piece,
               const SequenceOfToken* map, std::int64_t tokens);

/// Writes a head of dk[N,kv_heads,head_size] and dv at the sequence's tokens. Rows are aligned to 16 bytes.
void store_sums(const Launch& launch, const KeyGradientSums& sums, const SequenceOfToken* map,
                const Tensor& dk, const Tensor& dv, std::int64_t head);

}  // namespace drover::cuda
