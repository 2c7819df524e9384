#pragma once

#include <cstddef>

#include "backend/ops.h"

namespace drover::cpu::amx {

/// Who multiplies tiles: the processor, or plain code that stands for it in tests.
enum class TileUnit { hardware, emulated };

/// Memory that a product needs besides its operands; any content.
struct Scratch {
    std::byte* shared;            ///< shared_bytes()
    std::byte* const* of_thread;  ///< for each thread, thread_bytes
};

/// Bytes of Scratch::shared for a product.
std::size_t shared_bytes(const Gemm& gemm);
/// Bytes that each thread needs, for any product.
extern const std::size_t thread_bytes;

/// A product of bf16 matrices with AMX, summed in fp32; c and bias may be bf16 or fp32, depth is not zero.
/// How it is cut follows from its shape alone, so the result does not depend on the number of threads.
void multiply(const Gemm& gemm, TileUnit unit, const Scratch& scratch);

}  // namespace drover::cpu::amx
