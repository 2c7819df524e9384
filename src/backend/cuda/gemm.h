#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>

#include "backend/cuda/kernels.h"

namespace drover::cuda {

/// Matrix products through cuBLASLt. The algorithm of a shape is chosen once (gemm_choice.h) and kept: the
/// same on every run with the same library and GPU, so that a resumed run gives the same bits.
class GemmEngine {
  public:
    GemmEngine();
    ~GemmEngine();
    GemmEngine(const GemmEngine&) = delete;
    GemmEngine& operator=(const GemmEngine&) = delete;

    void run(const Launch& launch, const Gemm& operation);

    /// Products of fp32 with 10 bits of mantissa, which is several times faster.
    void use_tf32(bool tf32) { tf32_ = tf32; }

    static constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

  private:
    struct Plan;
    struct Key {
        DType operands, result;
        bool transpose_a, transpose_b, tf32;
        std::int64_t m, n, k, stride_a, stride_b, stride_c;
        int alignment_a, alignment_b, alignment_c;
        auto operator<=>(const Key&) const = default;
    };
    const Plan& plan_for(const Key& key);
    void run_with_bias(const Launch& launch, const Gemm& operation);

    cublasLtHandle_t handle_ = nullptr;
    bool tf32_ = false;
    std::map<Key, Plan> plans_;
};

}  // namespace drover::cuda
