#include "backend/cuda/grouped_gemm.h"

#include <fmt/format.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/grouped_fp8_product.h"
#include "backend/cuda/kernels/grouped_product.h"

namespace drover::cuda {
namespace {

/// One of matrices that lie one below the other.
Tensor matrix_of(const Tensor& stacked, std::int64_t experts, std::int64_t expert) {
    const std::int64_t height = stacked.size(0) / experts;
    return stacked.rows(expert * height, height);
}

}  // namespace

GroupedGemmEngine::~GroupedGemmEngine() {
    for (cudaStream_t stream : others_)
        if (stream != nullptr) cudaStreamDestroy(stream);
    for (cudaEvent_t event : events_)
        if (event != nullptr) cudaEventDestroy(event);
}

/// cuBLASLt's kernels are better where an expert's product keeps the whole GPU busy for long; ours has
/// neither gaps between experts nor a wait for the host.
GroupedGemmMethod GroupedGemmEngine::choose(const Launch& launch, const GroupedGemm& op) {
    constexpr double much_work = 5e10;  // FLOP of an expert: some 80 µs
    const auto experts = static_cast<double>(op.offsets.size(0) - 1);
    return op.cost().flops / experts < much_work && grouped_product_takes(launch, op)
               ? GroupedGemmMethod::kernel
               : GroupedGemmMethod::cublas;
}

void GroupedGemmEngine::run(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
                            const GroupedGemm& op) {
    if (op.c.numel() == 0) return;
    const GroupedGemmMethod method = forced_.value_or(choose(launch, op));
    if (method == GroupedGemmMethod::kernel && grouped_product_takes(launch, op))
        return grouped_product(launch, op);
    run_products(launch, products, offsets, op, method == GroupedGemmMethod::streams);
}

void GroupedGemmEngine::fork(cudaStream_t stream) {
    if (events_[0] == nullptr) {
        for (cudaEvent_t& event : events_)
            check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
        for (cudaStream_t& other : others_)
            check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "a stream");
    }
    check(cudaEventRecord(events_.back(), stream), "a grouped product");
    for (cudaStream_t other : others_)
        check(cudaStreamWaitEvent(other, events_.back(), 0), "a grouped product");
}

void GroupedGemmEngine::join(cudaStream_t stream) {
    for (std::size_t i = 0; i < others_.size(); ++i) {
        check(cudaEventRecord(events_[i], others_[i]), "a grouped product");
        check(cudaStreamWaitEvent(stream, events_[i], 0), "a grouped product");
    }
}

template <class Product>
void GroupedGemmEngine::for_each_expert(const Launch& launch, std::span<const std::int32_t> offsets,
                                        const Tensor& made, bool spread, const Product& product) {
    const std::int64_t experts = static_cast<std::int64_t>(offsets.size()) - 1;
    constexpr std::size_t bytes = GemmEngine::workspace_bytes;
    auto* workspace = static_cast<std::byte*>(launch.scratch.take(spread ? stream_count * bytes : bytes));
    if (spread) fork(launch.stream);
    std::size_t turn = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::int64_t begin = offsets[static_cast<std::size_t>(e)];
        const std::int64_t count = offsets[static_cast<std::size_t>(e) + 1] - begin;
        if (count == 0) {
            if (!made) continue;
            const Tensor matrix = matrix_of(made, experts, e);
            const std::size_t element = size_of(matrix.dtype());
            check(cudaMemset2DAsync(matrix.raw(), static_cast<std::size_t>(matrix.stride(0)) * element, 0,
                                    static_cast<std::size_t>(matrix.size(1)) * element,
                                    static_cast<std::size_t>(matrix.size(0)), launch.stream),
                  "the gradient of an expert without tokens");
            continue;
        }
        const std::size_t part = spread ? turn++ % stream_count : 0;
        product(Turn{.expert = e,
                     .begin = begin,
                     .rows = count,
                     .stream = part == 0 ? launch.stream : others_[part - 1],
                     .workspace = workspace + part * bytes});
    }
    if (spread) join(launch.stream);
}

void GroupedGemmEngine::run_products(const Launch& launch, GemmEngine& products, ExpertOffsets& known,
                                     const GroupedGemm& op, bool spread) {
    const std::int64_t experts = op.offsets.size(0) - 1;
    const bool makes_weights = op.use == GroupedGemm::Use::weight_gradient;
    const Tensor made = makes_weights && !op.accumulate ? op.c : Tensor();
    for_each_expert(launch, known.read(launch.stream, op.offsets), made, spread, [&](const Turn& turn) {
        const auto multiply = [&](Gemm product) {
            product.accumulate = op.accumulate;
            products.run_ragged(turn.stream, turn.workspace, product);
        };
        const Tensor rows = op.a.rows(turn.begin, turn.rows);
        const Tensor matrix = matrix_of(makes_weights ? op.c : op.b, experts, turn.expert);
        switch (op.use) {
            case GroupedGemm::Use::forward:
                multiply(Gemm::forward(rows, matrix, op.c.rows(turn.begin, turn.rows)));
                break;
            case GroupedGemm::Use::data_gradient:
                multiply(Gemm::data_gradient(rows, matrix, op.c.rows(turn.begin, turn.rows)));
                break;
            case GroupedGemm::Use::weight_gradient:
                multiply(Gemm::weight_gradient(rows, op.b.rows(turn.begin, turn.rows), matrix, false));
                break;
        }
    });
}

void GroupedGemmEngine::run(const Launch& launch, GemmEngine& products, ExpertOffsets& offsets,
                            const GroupedFp8Gemm& op) {
    if (op.c.numel() == 0) return;
    if (op.scales_a != Fp8Scales::one) {
        if (grouped_fp8_product_takes(launch, op)) return grouped_fp8_product(launch, op);
        throw Error(
            fmt::format("There is no code that multiplies experts in FP8 with scales of blocks on this "
                        "GPU (compute capability {}).",
                        text_of(launch.gpu.capability)),
            "Train with --fp8 tensorwise, or on a GPU of compute capability 9.0 (Hopper).");
    }
    const GroupedGemmMethod method = forced_.value_or(GroupedGemmMethod::kernel);
    if (method == GroupedGemmMethod::kernel && grouped_fp8_product_takes(launch, op))
        return grouped_fp8_product(launch, op);
    run_products(launch, products, offsets, op, method == GroupedGemmMethod::streams);
}

void GroupedGemmEngine::run_products(const Launch& launch, GemmEngine& products, ExpertOffsets& known,
                                     const GroupedFp8Gemm& op, bool spread) {
    const std::int64_t experts = op.offsets.size(0) - 1;
    const bool makes_weights = op.use == GroupedGemm::Use::weight_gradient;
    const Tensor made = makes_weights && !op.accumulate ? op.c : Tensor();
    std::int64_t next_column = 0;
    for_each_expert(launch, known.read(launch.stream, op.offsets), made, spread, [&](const Turn& turn) {
        Fp8Gemm product{
            .scale_a = op.scale_a, .scale_b = op.scale_b, .accumulate = op.accumulate, .fast = op.fast};
        if (makes_weights) {
            const std::int64_t columns = expert_columns(turn.rows, 1);
            product.a = op.a.columns(next_column, columns);
            product.b = op.b.columns(next_column, columns);
            product.c = matrix_of(op.c, experts, turn.expert);
            next_column += columns;
        } else {
            product.a = op.a.rows(turn.begin, turn.rows);
            product.b = matrix_of(op.b, experts, turn.expert);
            product.c = op.c.rows(turn.begin, turn.rows);
        }
        products.run_ragged(turn.stream, turn.workspace, product, makes_weights);
    });
}

}  // namespace drover::cuda
