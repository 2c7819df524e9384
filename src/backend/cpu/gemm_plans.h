#pragma once

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "backend/backend_settings.h"
#include "core/dtype.h"

namespace drover::cpu {

/// Everything that oneDNN compiles a product c[rows,columns] = op(a) · op(b) for.
struct PlanKey {
    std::int64_t rows, columns, depth;
    std::int64_t a_stride, b_stride, c_stride;  ///< elements between stored rows
    DType input, output;
    DType bias = DType::f32;  ///< meaningless unless has_bias
    bool has_bias = false;
    bool transpose_a = false, transpose_b = false, accumulate = false;

    bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
    std::size_t operator()(const PlanKey& key) const;
};

/// A compiled product. May run on several threads at once, each with its own scratch memory; each run uses
/// one thread.
class Plan {
  public:
    Plan(const PlanKey& key, const dnnl::engine& engine);

    std::size_t scratch_bytes() const { return scratch_.get_size(); }
    /// `bias` is read only if the key has one.
    void run(const void* a, const void* b, void* c, const void* bias, void* scratch) const;

  private:
    dnnl::engine engine_;
    dnnl::stream stream_;
    dnnl::memory::desc a_, b_, c_, bias_, scratch_;
    bool has_bias_;
    dnnl::matmul primitive_;
};

/// The plans made so far. Pointers to them stay valid until the next trim().
class PlanCache {
  public:
    /// The instructions that oneDNN may use are those of the first settings in this process.
    explicit PlanCache(const BackendSettings& settings);

    /// Whether oneDNN multiplies bf16 faster than fp32 here.
    bool fast_bf16() const { return fast_bf16_; }
    /// Whether oneDNN has its AVX-512 kernels, which unlike those of AVX2 pack what they read.
    bool avx512() const { return avx512_; }
    /// The plan for `key`, compiled on first use, which takes milliseconds.
    const Plan& find(const PlanKey& key);
    /// Drops all plans when there are so many that shapes must be changing all the time.
    void trim();

  private:
    dnnl::engine engine_;
    bool fast_bf16_, avx512_;
    std::unordered_map<PlanKey, std::unique_ptr<Plan>, PlanKeyHash> plans_;
};

}  // namespace drover::cpu
