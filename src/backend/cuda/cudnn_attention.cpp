#include "backend/cuda/cudnn_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <vector>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cudnn_attention_graph.h"
#include "backend/cuda/cudnn_attention_tables.h"
#include "backend/cuda/kernels/key_gradient_sums.h"

namespace drover::cuda {
namespace {

using namespace cudnn;

/// A plan that needs more than this is rejected. Pieces keep the scores' gradients within 4 GiB; the rest is
/// much less.
constexpr std::int64_t largest_workspace = std::int64_t{8} << 30;

/// A graph that was built for one shape, or why it could not be.
struct Plan {
    std::optional<AttentionGraph> graph;
    std::int64_t workspace = 0;
    std::string refusal;
};

}  // namespace

class CudnnAttention::Plans {
  public:
    Plans(Capability gpu, std::int64_t piece_bytes) : gpu_(gpu), piece_bytes_(piece_bytes) {
        const cudnnStatus_t status = cudnnCreate(&handle_);
        if (status != CUDNN_STATUS_SUCCESS) {
            handle_ = nullptr;
            broken_ = fmt::format("cuDNN cannot be used ({})", cudnnGetErrorString(status));
        }
    }
    ~Plans() {
        if (handle_ != nullptr) cudnnDestroy(handle_);
    }
    Plans(const Plans&) = delete;
    Plans& operator=(const Plans&) = delete;

    bool takes(const Problem& problem) {
        refusal = unfit(problem);
        if (!refusal.empty()) return false;
        const Pieces pieces(problem, piece_bytes_);
        // Given sequences in chunks gave wrong results with cuDNN 9.14.
        if (problem.ragged() && pieces.summed)
            refusal = fmt::format("the scores' gradients of given sequences in rows of {} do not fit {} MiB",
                                  problem.sequences.row_length, piece_bytes_ >> 20);
        for (const Chunk& chunk : pieces.chunks)
            if (refusal.empty()) refusal = plan_for(problem, pieces, chunk).refusal;
        return refusal.empty();
    }

    void run(const Launch& launch, const Problem& problem) {
        const Pieces pieces(problem, piece_bytes_);
        std::vector<const Plan*> plans;
        for (const Chunk& chunk : pieces.chunks) {
            plans.push_back(&plan_for(problem, pieces, chunk));
            require(plans.back()->refusal.empty(), "cuDNN's attention is run with what it refused");
        }
        check(cudnnSetStream(handle_, launch.stream));
        if (pieces.summed)
            run_summed(launch, problem, pieces, plans);
        else if (problem.ragged())
            run_ragged(launch, problem, pieces, *plans.front());
        else
            run_rows(launch, problem, pieces, *plans.front());
    }

    std::string refusal;

  private:
    /// Why the problem is unsuitable, as far as is known without asking cuDNN; empty if nothing is known
    /// against it.
    std::string unfit(const Problem& problem) const {
        if (!broken_.empty()) return broken_;
        const DType dtype = problem.tensor[q].dtype();
        if (dtype != DType::bf16 && dtype != DType::f16)
            return "cuDNN's attention has no " + std::string(name_of(dtype));
        if (problem.tensor[q].numel() == 0) return "there are no tokens";
        if (problem.head_size() % 8 != 0 || problem.head_size() > 256)
            return fmt::format("cuDNN's attention has no head size of {}", problem.head_size());
        if (problem.backward() && problem.ragged() && !repeats_given_sequences(gpu_))
            return fmt::format(
                "cuDNN's attention gradient of given sequences differs from run to run on GPUs of compute "
                "capability {}",
                text_of(gpu_));
        for (int operand = 0; operand < problem.count; ++operand) {
            const Tensor& tensor = problem.tensor[operand];
            if (reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 != 0 || tensor.stride(0) % 8 != 0 ||
                tensor.stride(1) % 8 != 0)
                return "cuDNN's attention needs operands whose rows are aligned to 16 bytes";
        }
        return {};
    }

    static void check(cudnnStatus_t status) {
        if (status != CUDNN_STATUS_SUCCESS)
            throw Error(fmt::format("cuDNN failed: {}.", cudnnGetErrorString(status)),
                        "Run again with CUDNN_LOGLEVEL_DBG=2 and CUDNN_LOGDEST_DBG=stderr to see why.");
    }

    const Plan& plan_for(const Problem& problem, const Pieces& pieces, const Chunk& chunk) {
        std::vector<std::int64_t> key = {problem.backward(),
                                         static_cast<std::int64_t>(problem.dtype()),
                                         problem.ragged(),
                                         pieces.batch,
                                         pieces.key_heads,
                                         pieces.heads,
                                         problem.head_size(),
                                         chunk.queries(),
                                         chunk.keys(),
                                         problem.window,
                                         std::bit_cast<std::int32_t>(problem.scale)};
        for (int operand = 0; operand < problem.count; ++operand) {
            const Places places(problem, pieces, operand);
            key.push_back(places.token_stride);
            key.push_back(places.head_stride);
        }
        const auto [found, is_new] = plans_.try_emplace(std::move(key));
        if (is_new) found->second = build(problem, pieces, chunk);
        return found->second;
    }

    Plan build(const Problem& problem, const Pieces& pieces, const Chunk& chunk) const {
        AttentionGraph graph(handle_, problem, pieces, chunk);
        Plan plan{.workspace = graph.workspace()};
        const auto what = [&] {
            return fmt::format("attention{} for heads {}/{} of {}, {} queries and {} keys{}",
                               problem.backward() ? " gradient" : "", pieces.heads, pieces.key_heads,
                               problem.head_size(), chunk.queries(), chunk.keys(),
                               problem.ragged() ? " in given sequences" : "");
        };
        if (graph.refusal())
            plan.refusal = fmt::format("cuDNN {} has no {}: {}", cudnnGetVersion(), what(), *graph.refusal());
        else if (plan.workspace > largest_workspace)
            plan.refusal =
                fmt::format("cuDNN would need {} MiB of working memory in {}", plan.workspace >> 20, what());
        else
            plan.graph.emplace(std::move(graph));
        return plan;
    }

    /// Σ dout · out comes first in backward's workspace. cuDNN computes it only for a sequence's tokens, and
    /// may read beyond them, where earlier operations may have left NaN.
    static void clear_products(const Launch& launch, void* workspace, const Plan& plan,
                               std::int64_t statistics_size) {
        clear(launch, workspace, std::min(plan.workspace, statistics_size));
    }

    void execute(const Plan& plan, Bindings& bindings, void* workspace) const {
        if (const auto failure = plan.graph->execute(handle_, bindings, workspace))
            throw Error(fmt::format("cuDNN's attention failed: {}.", *failure),
                        "Run again with CUDNN_LOGLEVEL_DBG=2 and CUDNN_LOGDEST_DBG=stderr to see why.");
    }

    /// Calls body(first sequence or row, first key/value head, first query head) for every piece of whole
    /// rows.
    template <class Body>
    static void for_each_piece(const Problem& problem, const Pieces& pieces, const Body& body) {
        for (std::int64_t first = 0; first < pieces.total; first += pieces.batch)
            for (std::int64_t head = 0; head < problem.key_heads(); head += pieces.key_heads)
                body(first, head, head * problem.group());
    }

    static void clear(const Launch& launch, void* memory, std::int64_t bytes) {
        cuda::check(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), launch.stream),
                    "attention's memory cannot be cleared");
    }

    void run_rows(const Launch& launch, const Problem& problem, const Pieces& pieces,
                  const Plan& plan) const {
        void* workspace = launch.scratch.take(static_cast<std::size_t>(plan.workspace));
        const std::int64_t length = problem.sequences.row_length;
        for_each_piece(problem, pieces, [&](std::int64_t row, std::int64_t key_head, std::int64_t head) {
            Bindings bindings{{statistics, static_cast<float*>(problem.lse.raw()) +
                                               (row * problem.heads() + head) * length}};
            for (int operand = 0; operand < problem.count; ++operand)
                bindings[1 + operand] = problem.from(operand, row * length, key_head, head);
            execute(plan, bindings, workspace);
        });
    }

    /// cuDNN writes nothing there.
    static void zero_results_at_gaps(const Launch& launch, const Problem& problem,
                                     const SequenceOfToken* map) {
        for (int operand : {out, dq, dk, dv})
            if (problem.backward() == (operand != out)) zero_gaps(launch, problem.tensor[operand], map);
    }

    void run_ragged(const Launch& launch, const Problem& problem, const Pieces& pieces,
                    const Plan& plan) const {
        const std::int64_t statistics_size = pieces.batch * pieces.heads * problem.sequences.row_length * 4;
        ScratchParts parts;
        const std::size_t workspace_at = parts.add(plan.workspace),
                          statistics_at = parts.add(statistics_size);
        const std::size_t map_at =
            parts.add(problem.sequences.tokens() * static_cast<std::int64_t>(sizeof(SequenceOfToken)));
        const TablePlaces places(parts, problem, pieces);
        auto* memory = static_cast<std::byte*>(launch.scratch.take(parts.bytes()));

        auto* map = reinterpret_cast<SequenceOfToken*>(memory + map_at);
        map_tokens(launch, problem.sequences, map);
        const RaggedTables tables = fill_tables(launch, problem, pieces, places, memory);
        if (!problem.backward())
            clear(launch, problem.lse.raw(), static_cast<std::int64_t>(problem.lse.bytes()));

        for_each_piece(problem, pieces, [&](std::int64_t first, std::int64_t key_head, std::int64_t head) {
            const StatisticsPart part{.first = first,
                                      .batch = pieces.batch,
                                      .first_head = head,
                                      .head_count = pieces.heads,
                                      .statistics = reinterpret_cast<float*>(memory + statistics_at)};
            if (problem.backward()) {
                clear(launch, part.statistics, statistics_size);
                clear_products(launch, memory + workspace_at, plan, statistics_size);
                lse_to_statistics(launch, part, map, problem.lse);
            }
            Bindings bindings{{statistics, part.statistics}};
            for (int operand = 0; operand < problem.count; ++operand)
                bindings[1 + operand] = problem.from(operand, 0, key_head, head);
            bind_tables(bindings, problem, tables, first);
            execute(plan, bindings, memory + workspace_at);
            if (!problem.backward()) statistics_to_lse(launch, part, map, problem.lse);
        });
        zero_results_at_gaps(launch, problem, map);
    }

    /// Backward by one row, one query head and one chunk at a time. dq of a chunk is whole; dk and dv are
    /// added in fp32, in the order of heads and chunks.
    void run_summed(const Launch& launch, const Problem& problem, const Pieces& pieces,
                    const std::vector<const Plan*>& plans) const {
        require(!problem.ragged(), "cuDNN's attention gradient of given sequences is run in chunks");
        const std::int64_t length = problem.sequences.row_length;
        const std::int64_t elements = length * problem.head_size(),
                           element_size = static_cast<std::int64_t>(size_of(problem.dtype()));
        std::int64_t workspace_size = 0;
        for (const Plan* plan : plans) workspace_size = std::max(workspace_size, plan->workspace);
        ScratchParts parts;
        const std::size_t workspace_at = parts.add(workspace_size), statistics_at = parts.add(length * 4);
        const std::size_t sums_at = parts.add(2 * elements * 4), dk_at = parts.add(elements * element_size),
                          dv_at = parts.add(elements * element_size);
        auto* memory = static_cast<std::byte*>(launch.scratch.take(parts.bytes()));
        auto* own_statistics = reinterpret_cast<float*>(memory + statistics_at);
        auto* all_sums = reinterpret_cast<float*>(memory + sums_at);
        const KeyGradientSums sums{
            .dk = all_sums, .dv = all_sums + elements, .length = length, .head_size = problem.head_size()};

        const auto add_chunk = [&](std::size_t index, std::int64_t first_token, std::int64_t key_head,
                                   std::int64_t head) {
            const Chunk& chunk = pieces.chunks[index];
            Bindings bindings{{statistics, own_statistics + chunk.first_query}};
            for (int operand = 0; operand < problem.count; ++operand)
                bindings[1 + operand] = problem.from(
                    operand, first_token + (of_keys(operand) ? chunk.first_key : chunk.first_query), key_head,
                    head);
            bindings[1 + dk] = memory + dk_at;
            bindings[1 + dv] = memory + dv_at;
            execute(*plans[index], bindings, memory + workspace_at);
            add_piece(launch, sums,
                      {.dk = memory + dk_at,
                       .dv = memory + dv_at,
                       .dtype = problem.dtype(),
                       .first_key = chunk.first_key,
                       .keys = chunk.keys()});
        };
        for (std::int64_t row = 0; row < pieces.total; ++row)
            for (std::int64_t key_head = 0; key_head < problem.key_heads(); ++key_head) {
                clear(launch, all_sums, 2 * elements * 4);
                for (std::int64_t head = key_head * problem.group(); head < (key_head + 1) * problem.group();
                     ++head) {
                    // So that every chunk's part is aligned, for any length.
                    cuda::check(cudaMemcpyAsync(own_statistics,
                                                static_cast<const float*>(problem.lse.raw()) +
                                                    (row * problem.heads() + head) * length,
                                                static_cast<std::size_t>(length) * sizeof(float),
                                                cudaMemcpyDeviceToDevice, launch.stream),
                                "attention's statistics cannot be copied");
                    for (std::size_t index = 0; index < pieces.chunks.size(); ++index)
                        add_chunk(index, row * length, key_head, head);
                }
                store_sums(launch, sums, problem.tensor[dk], problem.tensor[dv], row * length, key_head);
            }
    }

    const Capability gpu_;
    const std::int64_t piece_bytes_;
    cudnnHandle_t handle_ = nullptr;
    std::string broken_;
    std::map<std::vector<std::int64_t>, Plan> plans_;
};

CudnnAttention::CudnnAttention(Capability gpu, std::int64_t piece_bytes)
    : plans_(std::make_unique<Plans>(gpu, piece_bytes)) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::takes(const Attention& operation) const {
    return plans_->takes(Problem(operation));
}
bool CudnnAttention::takes(const AttentionBackward& operation) const {
    return plans_->takes(Problem(operation));
}
const std::string& CudnnAttention::refusal() const {
    return plans_->refusal;
}
void CudnnAttention::run(const Launch& launch, const Attention& operation) const {
    plans_->run(launch, Problem(operation));
}
void CudnnAttention::run(const Launch& launch, const AttentionBackward& operation) const {
    plans_->run(launch, Problem(operation));
}

}  // namespace drover::cuda
