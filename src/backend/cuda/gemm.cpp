#include "backend/cuda/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/gemm_choice.h"
#include "backend/cuda/kernels/bias_rows.h"

namespace drover::cuda {
namespace {

void check(cublasStatus_t status, std::string_view what) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw Error(
        fmt::format("cuBLASLt failed: {} ({}).", what, cublasLtGetStatusString(status)),
        "If memory is short, take a smaller batch; otherwise please report it with the model's config.json.");
}

cudaDataType_t data_type(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return CUDA_R_32F;
        case DType::bf16:
            return CUDA_R_16BF;
        case DType::f16:
            return CUDA_R_16F;
        case DType::f8:
            return CUDA_R_8F_E4M3;
        default:
            bug("no matrix products of this dtype");
    }
}

/// Of scales of blocks. Their layouts are those of shape_of_scales(), with the sides that are not summed over
/// multiples of 4 (cuBLAS' documentation, "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types").
cublasLtMatmulMatrixScale_t scale_mode(Fp8Scales scales) {
    return scales == Fp8Scales::squares ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                        : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
}

/// The largest power of two, at most 256, that the address is a multiple of.
int alignment_of(const Tensor& tensor) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.raw());
    return static_cast<int>(std::min<std::uintptr_t>(256, address & (~address + 1)));
}

}  // namespace

/// Everything about a product but its pointers and its algorithm. cuBLASLt is column-major: a row-major
/// matrix is its transpose there, so it computes cᵀ = op(b)ᵀ · op(a)ᵀ, with b as the first operand.
struct GemmEngine::Description {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t first, second, result;

    explicit Description(const Key& key) {
        const cublasComputeType_t compute = key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        check(cublasLtMatmulDescInit(&operation, compute, CUDA_R_32F), "a product's description");
        describe(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
        describe(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
        if (key.fast) describe(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
        const auto layout = [&](cublasLtMatrixLayoutOpaque_t& made, DType dtype, std::int64_t rows,
                                std::int64_t columns, std::int64_t stride) {
            check(cublasLtMatrixLayoutInit(&made, data_type(dtype), static_cast<std::uint64_t>(columns),
                                           static_cast<std::uint64_t>(rows), stride),
                  "a matrix' layout");
        };
        layout(first, key.operands, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n,
               key.stride_b);
        layout(second, key.operands, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k,
               key.stride_a);
        layout(result, key.result, key.m, key.n, key.stride_c);
    }

    /// Of an FP8 product: what its operands are multiplied by, on the device.
    void scale(const Fp8Gemm& op) {
        describe(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(op.scale_b.raw()));
        describe(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(op.scale_a.raw()));
        if (op.scales_a == Fp8Scales::one) return;
        describe(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(op.scales_b));
        describe(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(op.scales_a));
    }

  private:
    template <class Value>
    void describe(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
        check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
              "a product's description");
    }
};

GemmEngine::GemmEngine(const Gpu& gpu) : capability_(gpu.capability) {
    check(cublasLtCreate(&handle_), "its start");
}

GemmEngine::~GemmEngine() {
    cublasLtDestroy(handle_);
}

GemmEngine::Key GemmEngine::key_of(const Gemm& op) const {
    return {.operands = op.a.dtype(),
            .result = op.c.dtype(),
            .transpose_a = op.transpose_a,
            .transpose_b = op.transpose_b,
            .tf32 = tf32_ && op.a.dtype() == DType::f32,
            .m = op.c.size(0),
            .n = op.c.size(1),
            .k = op.a.size(op.transpose_a ? 0 : 1),
            .stride_a = op.a.stride(0),
            .stride_b = op.b.stride(0),
            .stride_c = op.c.stride(0),
            .alignment_a = alignment_of(op.a),
            .alignment_b = alignment_of(op.b),
            .alignment_c = alignment_of(op.c)};
}

std::vector<cublasLtMatmulHeuristicResult_t> GemmEngine::candidates(const Key& key, Description& what) const {
    cublasLtMatmulPreferenceOpaque_t preference;
    check(cublasLtMatmulPreferenceInit(&preference), "the choice of an algorithm");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
              "the choice of an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    // Parts of a sum that is cut over k are added in fp32, in a fixed order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.alignment_b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.alignment_a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.alignment_c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.alignment_c));
    std::vector<cublasLtMatmulHeuristicResult_t> offered(8);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, &what.operation, &what.first, &what.second, &what.result, &what.result, &preference,
        static_cast<int>(offered.size()), offered.data(), &count);
    if (count == 0 || status != CUBLAS_STATUS_SUCCESS)
        throw Error(fmt::format("cuBLASLt knows no way to multiply [{}, {}] and [{}, {}] in {}.", key.m,
                                key.k, key.k, key.n, name_of(key.operands)),
                    "Use another precision or shape, and please report it.");
    offered.resize(static_cast<std::size_t>(count));
    return offered;
}

cublasLtMatmulAlgo_t GemmEngine::choose(const Key& key) const {
    Description what(key);
    const auto offered = candidates(key, what);
    // Its preferences were measured on an H200.
    if (capability_ != hopper) return offered[0].algo;
    return offered[chosen_candidate(offered, {.transpose_a = key.transpose_a,
                                              .transpose_b = key.transpose_b,
                                              .n = key.n,
                                              .k = key.k})]
        .algo;
}

const cublasLtMatmulAlgo_t& GemmEngine::algorithm_for(const Key& key) {
    const auto found = algorithms_.find(key);
    return found != algorithms_.end() ? found->second : algorithms_.emplace(key, choose(key)).first->second;
}

cublasStatus_t GemmEngine::multiply(cudaStream_t stream, void* workspace, const Gemm& op, Description& what,
                                    const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, beta = op.accumulate ? 1.0f : 0.0f;
    return cublasLtMatmul(handle_, &what.operation, &one, op.b.raw(), &what.first, op.a.raw(), &what.second,
                          &beta, op.c.raw(), &what.result, op.c.raw(), &what.result, &algorithm, workspace,
                          workspace_bytes, stream);
}

void GemmEngine::run(const Launch& launch, const Gemm& op) {
    if (op.c.numel() == 0) return;
    if (op.bias) return run_with_bias(launch, op);
    if (op.a.numel() == 0) {
        if (!op.accumulate) fill(launch, Fill{.x = op.c});
        return;
    }
    const Key key = key_of(op);
    Description what(key);
    check(multiply(launch.stream, launch.scratch.take(workspace_bytes), op, what, algorithm_for(key)),
          "a product");
}

void GemmEngine::check_fp8(Fp8Scales scales) const {
    if (capability_ < oldest_with_fp8)
        throw Error(
            fmt::format("This GPU (compute capability {}) has no FP8 products.", text_of(capability_)),
            "Train without --fp8, or on a GPU of compute capability 8.9 or later (Ada, Hopper).");
    if (scales != Fp8Scales::one && capability_ != hopper)
        throw Error(fmt::format("cuBLASLt has no FP8 products with scales of blocks for this GPU (compute "
                                "capability {}).",
                                text_of(capability_)),
                    "Train with --fp8 tensorwise, or on a GPU of compute capability 9.0 (Hopper).");
}

void GemmEngine::run(const Launch& launch, const Fp8Gemm& op) {
    check_fp8(op.scales_a);
    if (op.c.numel() == 0) return;
    if (op.a.size(0) != op.c.size(0)) return run_filled_up(launch, op);
    Fp8Gemm product = op;
    product.bias = {};
    if (op.bias) {
        // The product is added to rows of the bias, which is exact: see run_with_bias().
        bias_rows(launch, op.c, {}, op.bias, op.accumulate);
        product.accumulate = true;
    }
    run_without_bias(launch, product);
}

/// The rows that fill up the first operand have results, too, for which c has no room. Some columns at a time
/// go through scratch memory, so that it need not be large.
void GemmEngine::run_filled_up(const Launch& launch, const Fp8Gemm& op) {
    constexpr std::int64_t most_results = 16 << 20;  // 64 MiB
    const std::int64_t rows = op.a.size(0), columns = op.b.size(0);
    const std::int64_t step = op.scales_b == Fp8Scales::squares
                                  ? std::max(most_results / rows / fp8_block, std::int64_t{1}) * fp8_block
                                  : columns;
    const auto bytes = static_cast<std::size_t>(rows * std::min(step, columns)) * sizeof(float);
    auto* memory = static_cast<std::byte*>(launch.scratch.take(workspace_bytes + bytes));
    for (std::int64_t first = 0; first < columns; first += step) {
        const std::int64_t count = std::min(step, columns - first);
        Fp8Gemm part = op;
        part.b = op.b.rows(first, count);
        if (op.scales_b == Fp8Scales::squares)
            part.scale_b = op.scale_b.rows(first / fp8_block, (count + fp8_block - 1) / fp8_block);
        part.c = Tensor(memory + workspace_bytes, DType::f32, {rows, count}, Device::cuda);
        part.bias = {};
        part.accumulate = false;
        run_without_bias(launch, part);
        bias_rows(launch, op.c.columns(first, count), part.c.rows(0, op.c.size(0)),
                  op.bias ? op.bias.rows(first, count) : Tensor(), op.accumulate);
    }
}

void GemmEngine::run_without_bias(const Launch& launch, const Fp8Gemm& op) {
    if (op.a.numel() == 0) {
        if (!op.accumulate) fill(launch, Fill{.x = op.c});
        return;
    }
    Gemm product = Gemm::forward(op.a, op.b, op.c);
    product.accumulate = op.accumulate;
    Key key = key_of(product);
    key.fast = op.fast;
    key.scales_a = op.scales_a;
    key.scales_b = op.scales_b;
    Description what(key);
    what.scale(op);
    const auto status_of = [&](const cublasLtMatmulAlgo_t& algorithm) {
        return multiply(launch.stream, launch.scratch.take(workspace_bytes), product, what, algorithm);
    };
    if (const auto found = algorithms_.find(key); found != algorithms_.end())
        return check(status_of(found->second), "an FP8 product");
    // Not all that the library offers for FP8 can be used; which ones is the same on every run.
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    Description asked(key);
    if (op.scales_a != Fp8Scales::one) asked.scale(op);  // it refuses these modes without an address
    for (const cublasLtMatmulHeuristicResult_t& candidate : candidates(key, asked)) {
        status = status_of(candidate.algo);
        if (status != CUBLAS_STATUS_SUCCESS) continue;
        algorithms_.emplace(key, candidate.algo);
        return;
    }
    check(status, "an FP8 product");
}

void GemmEngine::run_ragged(cudaStream_t stream, void* workspace, const Gemm& op, Description& what,
                            const Key& key, std::int64_t Key::*ragged) {
    Key rounded = key;
    std::int64_t& rows = rounded.*ragged;
    constexpr std::int64_t step = 256;
    rows = rows <= step ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)))
                        : (rows + step - 1) / step * step;
    if (multiply(stream, workspace, op, what, algorithm_for(rounded)) == CUBLAS_STATUS_SUCCESS) return;
    // In case the algorithm does not support this size, although it was chosen for a larger one.
    check(multiply(stream, workspace, op, what, choose(key)), "an expert's product");
}

void GemmEngine::run_ragged(cudaStream_t stream, void* workspace, const Gemm& op) {
    const Key key = key_of(op);
    Description what(key);
    run_ragged(stream, workspace, op, what, key, op.transpose_a ? &Key::k : &Key::m);
}

void GemmEngine::run_ragged(cudaStream_t stream, void* workspace, const Fp8Gemm& op, bool sums_rows) {
    check_fp8(op.scales_a);
    Gemm product = Gemm::forward(op.a, op.b, op.c);
    product.accumulate = op.accumulate;
    Key key = key_of(product);
    key.fast = op.fast;
    Description what(key);
    what.scale(op);
    run_ragged(stream, workspace, product, what, key, sums_rows ? &Key::k : &Key::m);
}

/// The library's own way to add a bias rounds twice. Here the product is added to rows of the bias, which is
/// exact where those lose nothing in the result's dtype; otherwise the product is made in fp32 first.
void GemmEngine::run_with_bias(const Launch& launch, const Gemm& op) {
    Gemm product = op;
    product.bias = {};
    if (op.c.dtype() == DType::f32 || (!op.accumulate && op.bias.dtype() == op.c.dtype())) {
        bias_rows(launch, op.c, {}, op.bias, op.accumulate);
        product.accumulate = true;
        return run(launch, product);
    }
    const auto bytes = static_cast<std::size_t>(op.c.numel()) * sizeof(float);
    auto* memory = static_cast<std::byte*>(launch.scratch.take(workspace_bytes + bytes));
    product.c = Tensor(memory + workspace_bytes, DType::f32, op.c.shape(), Device::cuda);
    product.accumulate = false;
    run(launch, product);
    bias_rows(launch, op.c, product.c, op.bias, op.accumulate);
}

}  // namespace drover::cuda
