#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <optional>

#include "backend/cuda/expert_offsets.h"
#include "backend/cuda/gemm.h"

namespace drover::cuda {

/// Products of experts, in one of three ways. DROVER_GROUPED_GEMM=cublas|streams|kernel forces one; sizes
/// that our kernel has no code for go to cuBLASLt.
class GroupedGemmEngine {
  public:
    /// Error when the environment variable is none of these.
    GroupedGemmEngine();
    ~GroupedGemmEngine();
    GroupedGemmEngine(const GroupedGemmEngine&) = delete;
    GroupedGemmEngine& operator=(const GroupedGemmEngine&) = delete;

    /// The first two ways wait until the offsets are known: a product's size must be known on the host.
    void run(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
             const GroupedGemm& operation);

  private:
    enum class Way : std::uint8_t {
        cublas,   ///< one cuBLASLt product per expert that has rows
        streams,  ///< the same on several streams, so that small products share the GPU
        kernel,   ///< all in one of our own
    };
    static constexpr std::size_t stream_count = 4;

    static Way choose(const GroupedGemm& operation);
    void run_products(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
                      const GroupedGemm& operation, bool spread);
    /// The other streams begin after what is in `stream`.
    void fork(cudaStream_t stream);
    /// What follows in `stream` begins after what is in the others.
    void join(cudaStream_t stream);

    std::optional<Way> forced_;
    std::array<cudaStream_t, stream_count - 1> others_{};
    std::array<cudaEvent_t, stream_count> events_{};
};

}  // namespace drover::cuda
