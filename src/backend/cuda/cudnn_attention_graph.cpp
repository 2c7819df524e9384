#include "backend/cuda/cudnn_attention_graph.h"

#include <cudnn_frontend.h>

namespace drover::cuda::cudnn {
namespace {

namespace frontend = cudnn_frontend;

/// Makes the graph of one piece.
class GraphMaker {
  public:
    GraphMaker(const Problem& problem, const Pieces& pieces, const Chunk& chunk)
        : problem_(problem), pieces_(pieces), chunk_(chunk) {}

    std::shared_ptr<frontend::graph::Graph> make() {
        graph_
            ->set_io_data_type(problem_.dtype() == DType::bf16 ? frontend::DataType_t::BFLOAT16
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
    using GraphTensor = std::shared_ptr<frontend::graph::Tensor_attributes>;

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
        // A chunk's last query sees its last key.
        attributes.set_name("attention")
            .set_attn_scale(problem_.scale)
            .set_diagonal_alignment(chunk_.queries() == chunk_.keys()
                                        ? frontend::DiagonalAlignment_t::TOP_LEFT
                                        : frontend::DiagonalAlignment_t::BOTTOM_RIGHT)
            .set_diagonal_band_right_bound(0);
        // cuDNN's bound counts the query itself, as our window does: row − column < bound.
        if (problem_.window > 0 && problem_.window < chunk_.keys())
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
        const Places places(problem_, pieces_, operand);
        const std::int64_t length = of_keys(operand) ? chunk_.keys() : chunk_.queries();
        tensor->set_uid(1 + operand)
            .set_dim({pieces_.batch, of_keys(operand) ? pieces_.key_heads : pieces_.heads, length,
                      problem_.head_size()})
            .set_stride({length * places.token_stride, places.head_stride, places.token_stride, 1});
        if (problem_.ragged())
            tensor->set_ragged_offset(
                integers(offsets + operand, pieces_.batch + 1, frontend::DataType_t::INT64));
        return *tensor;
    }

    /// Packed: cuDNN's backward reads other layouts wrongly before 9.26.
    frontend::graph::Tensor_attributes& shape_statistics(frontend::graph::Tensor_attributes& tensor) {
        const std::int64_t length = chunk_.queries();
        return tensor.set_uid(statistics)
            .set_dim({pieces_.batch, pieces_.heads, length, 1})
            .set_stride({pieces_.heads * length, length, 1, 1})
            .set_data_type(frontend::DataType_t::FLOAT);
    }

    const Problem& problem_;
    const Pieces& pieces_;
    const Chunk& chunk_;
    std::shared_ptr<frontend::graph::Graph> graph_ = std::make_shared<frontend::graph::Graph>();
};

}  // namespace

AttentionGraph::AttentionGraph(cudnnHandle_t handle, const Problem& problem, const Pieces& pieces,
                               const Chunk& chunk)
    : graph_(GraphMaker(problem, pieces, chunk).make()) {
    frontend::error_t status = graph_->build(handle, {frontend::HeurMode_t::A});
    if (status.is_good()) status = graph_->get_workspace_size(workspace_);
    if (!status.is_good()) refusal_ = status.get_message();
}

std::optional<std::string> AttentionGraph::execute(cudnnHandle_t handle, Bindings& bindings,
                                                   void* workspace) const {
    frontend::error_t status = graph_->execute(handle, bindings, workspace);
    if (status.is_good()) return std::nullopt;
    return status.get_message();
}

}  // namespace drover::cuda::cudnn
