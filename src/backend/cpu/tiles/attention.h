#pragma once

#include <cstddef>

#include "backend/cpu/tiles/tile_unit.h"
#include "backend/ops/attention.h"

/// Attention of bf16 tensors in tiles: products of bf16 with fp32 sums, softmax in fp32, weights and their
/// gradients rounded to bf16 before they are multiplied again. A task is one head of one sequence (forward:
/// of some of its queries), so the result does not depend on the number of threads. Keys are a tile's rows
/// and queries its columns: softmax needs no reduction across lanes, and nothing but the operands is ever
/// transposed.
namespace drover::cpu::tiles {

/// Bytes that each thread needs, aligned to 64.
std::size_t thread_bytes(const Attention& op);
std::size_t thread_bytes(const AttentionBackward& op);

void run(const Attention& op, TileUnit unit, std::byte* const* scratch_of_thread);
void run(const AttentionBackward& op, TileUnit unit, std::byte* const* scratch_of_thread);

}  // namespace drover::cpu::tiles
