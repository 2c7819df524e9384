#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <optional>

#include "backend/backend_settings.h"
#include "backend/cuda/expert_offsets.h"
#include "backend/cuda/gemm.h"

namespace drover::cuda {

/// Products of experts, by one of three methods, chosen by their sizes unless one is forced. Sizes that our
/// kernel has no code for go to cuBLASLt.
class GroupedGemmEngine {
  public:
    explicit GroupedGemmEngine(std::optional<GroupedGemmMethod> forced) : forced_(forced) {}
    ~GroupedGemmEngine();
    GroupedGemmEngine(const GroupedGemmEngine&) = delete;
    GroupedGemmEngine& operator=(const GroupedGemmEngine&) = delete;

    /// The first two methods wait until the offsets are known: a product's size must be known on the host.
    void run(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
             const GroupedGemm& operation);

  private:
    static constexpr std::size_t stream_count = 4;

    static GroupedGemmMethod choose(const GroupedGemm& operation);
    void run_products(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
                      const GroupedGemm& operation, bool spread);
    /// The other streams begin after what is in `stream`.
    void fork(cudaStream_t stream);
    /// What follows in `stream` begins after what is in the others.
    void join(cudaStream_t stream);

    std::optional<GroupedGemmMethod> forced_;
    std::array<cudaStream_t, stream_count - 1> others_{};
    std::array<cudaEvent_t, stream_count> events_{};
};

}  // namespace drover::cuda
