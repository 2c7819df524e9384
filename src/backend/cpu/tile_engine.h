#pragma once

#include "backend/cpu/thread_scratch.h"
#include "backend/cpu/tiles/tile_unit.h"
#include "backend/ops/attention.h"
#include "backend/ops/gemm.h"

namespace drover::cpu {

/// Matrix products and attention of bf16 tensors on a unit that multiplies tiles, with the memory that they
/// need.
class TileEngine {
  public:
    explicit TileEngine(tiles::TileUnit unit) : unit_(unit) {}

    /// Whether this engine should run an operation. It must not be given any other.
    bool takes(const Gemm& gemm) const;
    bool takes(const Attention& op) const;
    bool takes(const AttentionBackward& op) const;

    void run(const Gemm& gemm);
    void run(const Attention& op);
    void run(const AttentionBackward& op);

  private:
    tiles::TileUnit unit_;
    ThreadScratch scratch_;
    MemoryBlock shared_;  ///< grows to the largest size requested and never shrinks
    std::size_t shared_bytes_ = 0;
};

}  // namespace drover::cpu
