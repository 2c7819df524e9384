#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "backend/cuda/kernels.h"

namespace drover::cuda {

/// Matrix products through cuBLASLt. The algorithm of a shape is the library's first choice, made once and kept: the same on
/// every run with the same library and GPU, so that a resumed run gives the same bits.
class GemmEngine {
  public:
    GemmEngine();
    ~GemmEngine();
    GemmEngine(const GemmEngine&) = delete;
    GemmEngine& operator=(const GemmEngine&) = delete;

    void run(const Launch& launch, const Gemm& operation);

    static constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

  private:
    struct Plan;
    struct Key {
        DType operands, result, bias;
        bool transpose_a, transpose_b, accumulate, has_bias;
        std::int64_t m, n, k, stride_a, stride_b, stride_c;
        int alignment_a, alignment_b, alignment_c;
        auto operator<=>(const Key&) const = default;
    };
    const Plan& plan_for(const Key& key);

    cublasLtHandle_t handle_ = nullptr;
    std::map<Key, Plan> plans_;
};

}  // namespace drover::cuda
