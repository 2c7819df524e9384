#include "backend/cpu/gemm_plans.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string_view>

#include "core/error.h"

namespace drover::cpu {
namespace {

// ------------------------------------------------------------------------------------------ instruction sets

/// The levels up to AVX512_CORE_BF16 as oneDNN's environment variable names them, lowest first.
constexpr std::string_view levels[] = {
    "SSE41",           "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI",
    "AVX512_CORE_BF16"};

/// Position in `levels`, or the number of them for anything else.
std::size_t rank_of(std::string_view level) {
    std::size_t rank = 0;
    while (rank < std::size(levels) && levels[rank] != level) ++rank;
    return rank;
}

/// Keeps oneDNN from instructions that the settings forbid, and from AMX: it takes the tiles' sizes from
/// CPUID leaf 0x1D, which some hypervisors blank, and dies there with an illegal instruction. A lower level
/// in oneDNN's own variable is kept. Applies to the whole process, so only the first call has an effect.
void limit_instructions(const BackendSettings& settings) {
    static std::once_flag once;
    std::call_once(once, [&] {
        const bool avx2 = settings.cpu_instructions == CpuInstructions::avx2;
        if (rank_of(settings.onednn_instructions) <= rank_of(avx2 ? "AVX2" : "AVX512_CORE_BF16")) return;
        dnnl::set_max_cpu_isa(avx2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::avx512_core_bf16);
    });
}

// ------------------------------------------------------------------------------------------------ primitives

/// oneDNN decides how to cut a product when it compiles it, based on the number of threads; plans are for one
/// thread.
class OneThread {
  public:
    OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
    ~OneThread() { omp_set_num_threads(before_); }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;

  private:
    int before_;
};

dnnl::memory::data_type type_of(DType dtype) {
    require(dtype == DType::f32 || dtype == DType::bf16,
            "matrix product of a type that oneDNN is not used for");
    return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, DType dtype, std::int64_t stride,
                          bool transposed) {
    using dims = dnnl::memory::dims;
    return {dims{rows, columns}, type_of(dtype), transposed ? dims{1, stride} : dims{stride, 1}};
}

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const PlanKey& key,
                                      const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                      const dnnl::memory::desc& bias, const dnnl::memory::desc& c) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
        dnnl::post_ops operations;
        operations.append_sum(1.f);
        attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    return key.has_bias ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes)
                        : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
    return {key.has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c), attributes,
            engine};
#endif
}

}  // namespace

std::size_t PlanKeyHash::operator()(const PlanKey& key) const {
    std::size_t hash = 0;
    const auto mix = [&](auto value) {
        hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    };
    for (std::int64_t size : {key.rows, key.columns, key.depth, key.a_stride, key.b_stride, key.c_stride})
        mix(size);
    for (DType dtype : {key.input, key.output, key.bias}) mix(dtype);
    for (bool flag : {key.has_bias, key.transpose_a, key.transpose_b, key.accumulate}) mix(flag);
    return hash;
}

Plan::Plan(const PlanKey& key, const dnnl::engine& engine)
    : engine_(engine),
      stream_(engine),
      a_(matrix(key.rows, key.depth, key.input, key.a_stride, key.transpose_a)),
      b_(matrix(key.depth, key.columns, key.input, key.b_stride, key.transpose_b)),
      c_(matrix(key.rows, key.columns, key.output, key.c_stride, false)),
      bias_(matrix(1, key.columns, key.bias, key.columns, false)),
      has_bias_(key.has_bias) {
    try {
        const OneThread one_thread;
        const dnnl::matmul::primitive_desc description = describe(engine, key, a_, b_, bias_, c_);
        scratch_ = description.scratchpad_desc();
        primitive_ = dnnl::matmul(description);
    } catch (const dnnl::error& error) {
        bug(fmt::format("oneDNN has no product of {}×{}×{} {} into {}: {}", key.rows, key.columns, key.depth,
                        name_of(key.input), name_of(key.output), error.what()));
    }
}

void Plan::run(const void* a, const void* b, void* c, const void* bias, void* scratch) const {
    const auto memory = [&](const dnnl::memory::desc& description, const void* data) {
        return dnnl::memory(description, engine_, const_cast<void*>(data));
    };
    try {
        std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, memory(a_, a)},
                                                           {DNNL_ARG_WEIGHTS, memory(b_, b)},
                                                           {DNNL_ARG_DST, memory(c_, c)},
                                                           {DNNL_ARG_SCRATCHPAD, memory(scratch_, scratch)}};
        if (has_bias_) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, bias));
        primitive_.execute(stream_, arguments);
    } catch (const dnnl::error& error) {
        bug(fmt::format("oneDNN could not run a matrix product: {}", error.what()));
    }
}

PlanCache::PlanCache(const BackendSettings& settings) {
    limit_instructions(settings);
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    const auto has = [](dnnl::cpu_isa level) {
        const auto needed = static_cast<unsigned>(level);
        return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
    };
    fast_bf16_ = has(dnnl::cpu_isa::avx512_core_bf16);
    avx512_ = has(dnnl::cpu_isa::avx512_core);
}

const Plan& PlanCache::find(const PlanKey& key) {
    std::unique_ptr<Plan>& plan = plans_[key];
    if (!plan) plan = std::make_unique<Plan>(key, engine_);
    return *plan;
}

void PlanCache::trim() {
    constexpr std::size_t most_plans = 4096;
    if (plans_.size() > most_plans) plans_.clear();
}

}  // namespace drover::cpu
