#include "backend/cuda/cudnn_attention.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <map>
#include <unordered_map>
#include <vector>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cudnn_attention_problem.h"
#include "backend/cuda/kernels/sequence_map.h"

namespace drover::cuda {
namespace {

namespace frontend = cudnn_frontend;
using namespace cudnn;
using GraphTensor = std::shared_ptr<frontend::graph::Tensor_attributes>;

/// A plan that needs more than this is not taken.
constexpr std::int64_t largest_workspace = std::int64_t{16} << 30;

/// Names of a graph's tensors besides its operands, which are called 1 + operand; their offsets are called
/// `offsets + operand`.
enum Other : std::int64_t { statistics = 1 + operands, query_lengths, key_lengths, offsets };

/// A graph that was built for one shape, or why it could not be.
struct Plan {
    std::shared_ptr<frontend::graph::Graph> graph;
    std::int64_t workspace = 0;
    std::string refusal;
};

/// Makes the graph of one piece.
class GraphMaker {
  public:
    GraphMaker(const Problem& problem, const Pieces& pieces) : problem_(problem), pieces_(pieces) {}

    std::shared_ptr<frontend::graph::Graph> make() {
        graph_
            ->set_io_data_type(problem_.tensor[q].dtype() == DType::bf16 ? frontend::DataType_t::BFLOAT16
                                                                         : frontend::DataType_t::HALF)
            .set_intermediate_data_type(frontend::DataType_t::FLOAT)
            .set_compute_data_type(frontend::DataType_t::FLOAT);
        if (problem_.backward())
            make_backward();
        else
            make_forward();
        return graph_;
    }

  private:
    void make_forward() {
        auto attributes = frontend::graph::SDPA_attributes().set_generate_stats(true);
        set_common(attributes);
        auto [result, lse] = graph_->sdpa(input(q), input(k), input(v), attributes);
        shape(result, out).set_output(true);
        shape_statistics(*lse).set_output(true);
    }

    void make_backward() {
        auto attributes = frontend::graph::SDPA_backward_attributes().set_deterministic_algorithm(true);
        set_common(attributes);
        const GraphTensor lse = graph_->tensor(frontend::graph::Tensor_attributes().set_name("statistics"));
        shape_statistics(*lse);
        auto [query, key, value] =
            graph_->sdpa_backward(input(q), input(k), input(v), input(out), input(dout), lse, attributes);
        shape(query, dq).set_output(true);
        shape(key, dk).set_output(true);
        shape(value, dv).set_output(true);
    }

    template <class Attributes>
    void set_common(Attributes& attributes) {
        attributes.set_name("attention")
            .set_attn_scale(problem_.scale)
            .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
            .set_diagonal_band_right_bound(0);
        // Their bound counts the query itself, as our window does: row − column < bound.
        if (problem_.window > 0 && problem_.window < problem_.sequences.row_length)
            attributes.set_diagonal_band_left_bound(static_cast<int>(problem_.window));
        if (problem_.ragged())
            attributes.set_padding_mask(true)
                .set_seq_len_q(integers(query_lengths, pieces_.batch, frontend::DataType_t::INT32))
                .set_seq_len_kv(integers(key_lengths, pieces_.batch, frontend::DataType_t::INT32));
    }

    GraphTensor integers(std::int64_t uid, std::int64_t count, frontend::DataType_t type) {
        return graph_->tensor(frontend::graph::Tensor_attributes()
                                  .set_uid(uid)
                                  .set_dim({count, 1, 1, 1})
                                  .set_stride({1, 1, 1, 1})
                                  .set_data_type(type));
    }

    GraphTensor input(int operand) {
        GraphTensor tensor = graph_->tensor(frontend::graph::Tensor_attributes());
        shape(tensor, operand);
        return tensor;
    }

    frontend::graph::Tensor_attributes& shape(const GraphTensor& tensor, int operand) {
        const std::int64_t group = problem_.heads() / problem_.key_heads();
        const std::int64_t token_stride = problem_.token_stride(operand),
                           length = problem_.sequences.row_length;
        tensor->set_uid(1 + operand)
            .set_dim({pieces_.batch, of_keys(operand) ? pieces_.key_heads : pieces_.key_heads * group, length,
                      problem_.head_size()})
            .set_stride({length * token_stride, problem_.head_stride(operand), token_stride, 1});
        if (problem_.ragged())
            tensor->set_ragged_offset(
                integers(offsets + operand, pieces_.batch + 1, frontend::DataType_t::INT64));
        return *tensor;
    }

    frontend::graph::Tensor_attributes& shape_statistics(frontend::graph::Tensor_attributes& tensor) {
        const std::int64_t heads = pieces_.key_heads * (problem_.heads() / problem_.key_heads());
        const std::int64_t length = problem_.sequences.row_length;
        return tensor.set_uid(statistics)
            .set_dim({pieces_.batch, heads, length, 1})
            .set_stride({heads * length, length, 1, 1})
            .set_data_type(frontend::DataType_t::FLOAT);
    }

    const Problem& problem_;
    const Pieces& pieces_;
    std::shared_ptr<frontend::graph::Graph> graph_ = std::make_shared<frontend::graph::Graph>();
};

void* shifted(void* data, std::int64_t items, DType dtype) {
    return static_cast<std::byte*>(data) + items * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

class CudnnAttention::Plans {
  public:
    Plans() {
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
        if (refusal.empty()) refusal = plan_for(problem, Pieces(problem)).refusal;
        return refusal.empty();
    }

    void run(const Launch& launch, const Problem& problem) {
        const Pieces pieces(problem);
        const Plan& plan = plan_for(problem, pieces);
        require(plan.refusal.empty(), "cuDNN's attention is run with what it refused");
        check(cudnnSetStream(handle_, launch.stream));
        if (problem.ragged())
            run_ragged(launch, problem, pieces, plan);
        else
            run_rows(launch, problem, pieces, plan);
    }

    std::string refusal;

  private:
    using Bindings = std::unordered_map<std::int64_t, void*>;

    /// What can be said without asking cuDNN; empty when there is nothing.
    std::string unfit(const Problem& problem) const {
        if (!broken_.empty()) return broken_;
        const DType dtype = problem.tensor[q].dtype();
        if (dtype != DType::bf16 && dtype != DType::f16)
            return "cuDNN's attention has no " + std::string(name_of(dtype));
        if (problem.tensor[q].numel() == 0) return "there are no tokens";
        if (problem.head_size() % 8 != 0 || problem.head_size() > 256)
            return fmt::format("cuDNN's attention has no head size of {}", problem.head_size());
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

    const Plan& plan_for(const Problem& problem, const Pieces& pieces) {
        std::vector<std::int64_t> key = {problem.backward(),
                                         static_cast<std::int64_t>(problem.tensor[q].dtype()),
                                         problem.ragged(),
                                         pieces.batch,
                                         pieces.key_heads,
                                         problem.heads(),
                                         problem.key_heads(),
                                         problem.head_size(),
                                         problem.sequences.row_length,
                                         problem.window,
                                         std::bit_cast<std::int32_t>(problem.scale)};
        for (int operand = 0; operand < problem.count; ++operand) {
            key.push_back(problem.token_stride(operand));
            key.push_back(problem.head_stride(operand));
        }
        const auto [found, is_new] = plans_.try_emplace(std::move(key));
        if (is_new) found->second = build(problem, pieces);
        return found->second;
    }

    Plan build(const Problem& problem, const Pieces& pieces) const {
        Plan plan;
        auto graph = GraphMaker(problem, pieces).make();
        frontend::error_t status = graph->build(handle_, {frontend::HeurMode_t::A});
        if (status.is_good()) status = graph->get_workspace_size(plan.workspace);
        if (!status.is_good())
            plan.refusal =
                fmt::format("cuDNN {} has no attention{} for heads {}/{} of {}, rows of {}{}: {}",
                            cudnnGetVersion(), problem.backward() ? " gradient" : "", problem.heads(),
                            problem.key_heads(), problem.head_size(), problem.sequences.row_length,
                            problem.ragged() ? " in given sequences" : "", status.get_message());
        else if (plan.workspace > largest_workspace)
            plan.refusal = fmt::format(
                "cuDNN's attention{} would need {} MiB of working memory for rows of {}",
                problem.backward() ? " gradient" : "", plan.workspace >> 20, problem.sequences.row_length);
        else
            plan.graph = std::move(graph);
        return plan;
    }

    void execute(const Plan& plan, Bindings& bindings, void* workspace) const {
        frontend::error_t status = plan.graph->execute(handle_, bindings, workspace);
        if (!status.is_good())
            throw Error(fmt::format("cuDNN's attention failed: {}.", status.get_message()),
                        "Run again with CUDNN_LOGLEVEL_DBG=2 and CUDNN_LOGDEST_DBG=stderr to see why.");
    }

    /// Calls body(first sequence or row, first key/value head, first query head) for every piece.
    template <class Body>
    static void for_each_piece(const Problem& problem, const Pieces& pieces, const Body& body) {
        const std::int64_t group = problem.heads() / problem.key_heads();
        for (std::int64_t first = 0; first < pieces.total; first += pieces.batch)
            for (std::int64_t head = 0; head < problem.key_heads(); head += pieces.key_heads)
                body(first, head, head * group);
    }

    void run_rows(const Launch& launch, const Problem& problem, const Pieces& pieces,
                  const Plan& plan) const {
        void* workspace = launch.scratch.take(static_cast<std::size_t>(plan.workspace));
        const std::int64_t length = problem.sequences.row_length;
        for_each_piece(problem, pieces, [&](std::int64_t row, std::int64_t key_head, std::int64_t head) {
            Bindings bindings;
            for (int operand = 0; operand < problem.count; ++operand) {
                const Tensor& x = problem.tensor[operand];
                bindings[1 + operand] = shifted(
                    x.raw(), row * length * x.stride(0) + (of_keys(operand) ? key_head : head) * x.stride(1),
                    x.dtype());
            }
            bindings[statistics] =
                shifted(problem.lse.raw(), (row * problem.heads() + head) * length, problem.lse.dtype());
            execute(plan, bindings, workspace);
        });
    }

    void run_ragged(const Launch& launch, const Problem& problem, const Pieces& pieces,
                    const Plan& plan) const {
        const std::int64_t piece_heads = pieces.key_heads * (problem.heads() / problem.key_heads());
        const std::int64_t statistics_size = pieces.batch * piece_heads * problem.sequences.row_length * 4;
        ScratchParts parts;
        const std::size_t workspace_at = parts.add(plan.workspace),
                          statistics_at = parts.add(statistics_size);
        const std::size_t map_at =
            parts.add(problem.sequences.tokens() * static_cast<std::int64_t>(sizeof(SequenceOfToken)));
        const std::size_t length_at = parts.add(pieces.total * 4);
        const std::size_t offset_at = parts.add((pieces.total + 1) * problem.count * 8);
        std::array<std::size_t, operands> copy_at{};
        for (int operand = 0; operand < problem.count; ++operand)
            if (copied(operand))
                copy_at[operand] = parts.add(static_cast<std::int64_t>(problem.tensor[operand].bytes()));
        auto* memory = static_cast<std::byte*>(launch.scratch.take(parts.bytes()));

        auto* map = reinterpret_cast<SequenceOfToken*>(memory + map_at);
        map_tokens(launch, problem.sequences, map);
        RaggedTables tables{.batch = pieces.total,
                            .strides = problem.count,
                            .length = reinterpret_cast<std::int32_t*>(memory + length_at),
                            .offset = reinterpret_cast<std::int64_t*>(memory + offset_at)};
        std::array<void*, operands> data{};
        for (int operand = 0; operand < problem.count; ++operand) {
            const Tensor& x = problem.tensor[operand];
            tables.stride[operand] = problem.token_stride(operand);
            data[operand] = copied(operand) ? memory + copy_at[operand] : x.raw();
            if (copied(operand)) copy_sequences(launch, x, map, data[operand]);
        }
        fill_ragged_tables(launch, problem.sequences, tables);
        if (!problem.backward())
            cuda::check(cudaMemsetAsync(problem.lse.raw(), 0, problem.lse.bytes(), launch.stream),
                        "attention's statistics");

        for_each_piece(problem, pieces, [&](std::int64_t first, std::int64_t key_head, std::int64_t head) {
            const StatisticsPart part{.first = first,
                                      .batch = pieces.batch,
                                      .first_head = head,
                                      .head_count = piece_heads,
                                      .statistics = reinterpret_cast<float*>(memory + statistics_at)};
            if (problem.backward()) {
                cuda::check(cudaMemsetAsync(part.statistics, 0, static_cast<std::size_t>(statistics_size),
                                            launch.stream),
                            "attention's statistics");
                lse_to_statistics(launch, part, map, problem.lse);
            }
            Bindings bindings{{statistics, part.statistics},
                              {query_lengths, tables.length + first},
                              {key_lengths, tables.length + first}};
            for (int operand = 0; operand < problem.count; ++operand) {
                bindings[1 + operand] = shifted(
                    data[operand], (of_keys(operand) ? key_head : head) * problem.head_stride(operand),
                    problem.tensor[operand].dtype());
                bindings[offsets + operand] = tables.offset + operand * (pieces.total + 1) + first;
            }
            execute(plan, bindings, memory + workspace_at);
            if (!problem.backward()) statistics_to_lse(launch, part, map, problem.lse);
        });
        for (int operand : {out, dq, dk, dv})
            if (problem.backward() == (operand != out)) zero_gaps(launch, problem.tensor[operand], map);
    }

    cudnnHandle_t handle_ = nullptr;
    std::string broken_;
    std::map<std::vector<std::int64_t>, Plan> plans_;
};

CudnnAttention::CudnnAttention() : plans_(std::make_unique<Plans>()) {}
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
