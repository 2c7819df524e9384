#pragma once

#include <functional>
#include <vector>

#include "backend/ops/fp8.h"
#include "backend/ops/gemm.h"

namespace drover::cpu {

/// FP8 products without instructions for them: every FP8 number is a bf16 number, also times a power of two,
/// so a product of bf16 gives the same sums. `fast` is ignored: sums are fp32.
class Fp8GemmEngine {
  public:
    /// `multiply` computes products of bf16.
    void run(const Fp8Gemm& operation, const std::function<void(const Gemm&)>& multiply);
    void run(const GroupedFp8Gemm& operation, const std::function<void(const Gemm&)>& multiply);

  private:
    // They grow to the largest product seen, and never shrink.
    std::vector<bf16> a_, b_;
    std::vector<float> sums_;
};

}  // namespace drover::cpu
