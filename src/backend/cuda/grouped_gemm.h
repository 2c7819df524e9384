#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/gemm.h"

namespace drover::cuda {

/// One cuBLASLt product per expert that has rows.
class GroupedGemmEngine {
  public:
    GroupedGemmEngine() = default;
    ~GroupedGemmEngine();
    GroupedGemmEngine(const GroupedGemmEngine&) = delete;
    GroupedGemmEngine& operator=(const GroupedGemmEngine&) = delete;

    /// Waits until the offsets are known: the one operation that does, since a product's size must be known
    /// on the host.
    void run(const Launch& launch, GemmEngine& products, const GroupedGemm& operation);

  private:
    const std::int32_t* read_offsets(const Launch& launch, const Tensor& offsets);

    std::int32_t* host_ = nullptr;
    std::size_t capacity_ = 0;
    cudaEvent_t arrived_ = nullptr;
};

}  // namespace drover::cuda
