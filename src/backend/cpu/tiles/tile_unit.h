#pragma once

namespace drover::cpu::tiles {

/// The unit that multiplies bf16 tiles: AMX, or vector instructions with products of bf16 pairs
/// (AVX512_BF16).
enum class TileUnit { amx, vectors };

}  // namespace drover::cpu::tiles
