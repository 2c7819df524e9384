#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "backend/cuda/kernels.h"

namespace drover::cuda {

/// Matrix products through cuBLASLt. The algorithm of a shape is chosen once (gemm_choice.h) and kept: the
/// same on every run with the same library and GPU, so that a resumed run gives the same bits.
class GemmEngine {
  public:
    explicit GemmEngine(const Gpu& gpu);
    ~GemmEngine();
    GemmEngine(const GemmEngine&) = delete;
    GemmEngine& operator=(const GemmEngine&) = delete;

    void run(const Launch& launch, const Gemm& operation);
    /// Error on a GPU without FP8, or without products of blocks with scales of their own.
    void run(const Launch& launch, const Fp8Gemm& operation);

    /// A product of an expert's rows, whose number changes from step to step. The algorithm is that of the
    /// next larger of a few row counts, so that the number of choices is bounded. Not empty, and without a
    /// bias; `workspace` has workspace_bytes, on the device.
    void run_ragged(cudaStream_t stream, void* workspace, const Gemm& operation);
    /// The same in FP8; `sums_rows`: the expert's rows are what is summed over. Operands may be strided.
    void run_ragged(cudaStream_t stream, void* workspace, const Fp8Gemm& operation, bool sums_rows);

    /// Products of fp32 with 10 bits of mantissa, which is several times faster.
    void use_tf32(bool tf32) { tf32_ = tf32; }

    static constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

  private:
    struct Description;
    struct Key {
        DType operands, result;
        bool transpose_a, transpose_b, tf32;
        bool fast = false;  ///< of FP8 alone, as the next two
        Fp8Scales scales_a = Fp8Scales::one, scales_b = Fp8Scales::one;
        std::int64_t m, n, k, stride_a, stride_b, stride_c;
        int alignment_a, alignment_b, alignment_c;
        auto operator<=>(const Key&) const = default;
    };
    Key key_of(const Gemm& operation) const;
    /// What the library offers for a product, its best guess first; never empty.
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Key& key, Description& what) const;
    cublasLtMatmulAlgo_t choose(const Key& key) const;
    const cublasLtMatmulAlgo_t& algorithm_for(const Key& key);
    cublasStatus_t multiply(cudaStream_t stream, void* workspace, const Gemm& operation,
                            Description& description, const cublasLtMatmulAlgo_t& algorithm);
    void run_with_bias(const Launch& launch, const Gemm& operation);
    void run_ragged(cudaStream_t stream, void* workspace, const Gemm& operation, Description& description,
                    const Key& key, std::int64_t Key::*rows);

    void check_fp8(Fp8Scales scales) const;
    void run_filled_up(const Launch& launch, const Fp8Gemm& operation);
    void run_without_bias(const Launch& launch, const Fp8Gemm& operation);

    const Capability capability_;
    cublasLtHandle_t handle_ = nullptr;
    bool tf32_ = false;
    std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace drover::cuda
