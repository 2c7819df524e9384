#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <optional>
#include <span>

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
    /// The same with operands in FP8, by our kernel where it has code. Error on a GPU without FP8, and for
    /// scales of blocks where the kernel has none.
    void run(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
             const GroupedFp8Gemm& operation);

  private:
    static constexpr std::size_t stream_count = 4;

    static GroupedGemmMethod choose(const Launch& launch, const GroupedGemm& operation);
    void run_products(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
                      const GroupedGemm& operation, bool spread);
    void run_products(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
                      const GroupedFp8Gemm& operation, bool spread);
    /// An expert's product, and where to run it.
    struct Turn {
        std::int64_t expert, begin, rows;
        cudaStream_t stream;
        void* workspace;
    };
    /// Calls product(Turn) for every expert that has rows. Where the others' matrices of `made` are to become
    /// zero, they do.
    template <class Product>
    void for_each_expert(const Launch& launch, std::span<const std::int32_t> offsets, const Tensor& made,
                         bool spread, const Product& product);
    /// The other streams begin after what is in `stream`.
    void fork(cudaStream_t stream);
    /// What follows in `stream` begins after what is in the others.
    void join(cudaStream_t stream);

    std::optional<GroupedGemmMethod> forced_;
    std::array<cudaStream_t, stream_count - 1> others_{};
    std::array<cudaEvent_t, stream_count> events_{};
};

}  // namespace drover::cuda
