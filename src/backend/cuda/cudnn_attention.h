#pragma once

#include <memory>
#include <string>

#include "backend/cuda/kernels.h"

namespace drover::cuda {

/// Attention through cuDNN's fused kernels: bf16 or f16, operands read and written in place, backward with
/// the same bits every time. The kernel for a shape is the library's first choice, made once and kept.
///
/// Deterministic backward on Hopper keeps the scores' gradients in memory, so it runs in pieces (of rows, of
/// key/value heads, of query heads, of a row's queries) that bound this; given sequences are not cut further
/// than to a key/value head. A lower bound lets short rows be cut as well.
class CudnnAttention {
  public:
    /// `piece_bytes` bounds what a piece of backward takes.
    CudnnAttention(Capability gpu, std::int64_t piece_bytes);
    ~CudnnAttention();
    CudnnAttention(const CudnnAttention&) = delete;
    CudnnAttention& operator=(const CudnnAttention&) = delete;

    /// Whether run() can do it; chooses the kernel, and so takes a while for a new shape.
    bool takes(const Attention& operation) const;
    bool takes(const AttentionBackward& operation) const;
    /// Why takes() last said no.
    const std::string& refusal() const;

    /// Only what takes() said yes to.
    void run(const Launch& launch, const Attention& operation) const;
    void run(const Launch& launch, const AttentionBackward& operation) const;

  private:
    class Plans;
    std::unique_ptr<Plans> plans_;
};

}  // namespace drover::cuda
