#pragma once

#include <cstddef>

#include "backend/cpu/tiles/tile_unit.h"
#include "backend/ops/gemm.h"

namespace drover::cpu::tiles {

/// Memory that a product needs in addition to its operands; any content, aligned to 64 bytes.
struct Scratch {
    std::byte* shared;            ///< shared_bytes()
    std::byte* const* of_thread;  ///< for each thread, thread_bytes()
};

std::size_t shared_bytes(const Gemm& gemm, TileUnit unit);
std::size_t thread_bytes(TileUnit unit);

/// A product of bf16 matrices in tiles, summed in fp32; c and bias may be bf16 or fp32, depth is not zero.
/// How it is cut follows from its shape alone, so the result does not depend on the number of threads.
void multiply(const Gemm& gemm, TileUnit unit, const Scratch& scratch);

}  // namespace drover::cpu::tiles
