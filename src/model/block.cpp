#include "model/block.h"

#include <cmath>

namespace drover {
namespace {

/// The three parts of the packed q‖k‖v [N, (heads + 2·kv_heads)·D], as heads.
struct QkvHeads {
    Tensor q;       ///< [N,heads,D]
    Tensor k, v;    ///< [N,kv_heads,D]
    Tensor rotated; ///< [N,heads + kv_heads,D]: q and k, which stand side by side

    QkvHeads(const Tensor& qkv, const BlockShape& s)
        : q(qkv.columns(0, s.query_columns()).split_columns(s.heads, s.head_dim)),
          k(qkv.columns(s.query_columns(), s.key_value_columns()).split_columns(s.kv_heads, s.head_dim)),
          v(qkv.columns(s.query_columns() + s.key_value_columns(), s.key_value_columns())
                .split_columns(s.kv_heads, s.head_dim)),
          rotated(qkv.columns(0, s.query_columns() + s.key_value_columns())
                      .split_columns(s.heads + s.kv_heads, s.head_dim)) {}
};

float attention_scale(const BlockShape& shape) {
    return 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
}

}  // namespace

// ------------------------------------------------------------------------------------------------------ forward

Tensor DecoderBlock::forward(const Tensor& stream, const Tensor& branch) const {
    first_norm(stream, branch);
    second_norm(attention());
    gate_and_up();
    activation();
    return down();
}

void DecoderBlock::first_norm(const Tensor& stream, const Tensor& branch) const {
    c_.run(RmsNorm{.x = branch,
                   .residual_in = stream ? stream : a_.residual,
                   .residual_out = a_.residual,
                   .weight = w_[BlockStorage::attention_norm],
                   .y = a_.attention_normed,
                   .rstd = a_.attention_rstd,
                   .eps = c_.norm_eps});
}

Tensor DecoderBlock::attention() const {
    const BlockShape& s = c_.shape;
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.attention_normed, c_.scratch.gathered);  // [N,H]
    c_.run(Gemm::forward(x, w_[BlockStorage::qkv], a_.qkv, w_[BlockStorage::qkv_bias]));

    const QkvHeads heads(a_.qkv, s);
    c_.run(Rope{.x = heads.rotated, .cosine = c_.rope_cosine, .sine = c_.rope_sine, .positions = c_.batch.positions});
    c_.run(Attention{.q = heads.q,
                     .k = heads.k,
                     .v = heads.v,
                     .out = a_.attended.split_columns(s.heads, s.head_dim),
                     .lse = a_.lse.view({s.rows, s.heads, s.row_length}),
                     .sequences = c_.batch.sequences,
                     .scale = attention_scale(s)});

    c_.run(Gemm::forward(a_.attended, w_[BlockStorage::attention_output], c_.scratch.branch,
                         on_one_rank(w_[BlockStorage::attention_output_bias])));
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

void DecoderBlock::second_norm(const Tensor& branch) const {
    c_.run(RmsNorm{.x = branch,
                   .residual_in = branch ? a_.residual : a_.mid_residual,
                   .residual_out = a_.mid_residual,
                   .weight = w_[BlockStorage::mlp_norm],
                   .y = a_.mlp_normed,
                   .rstd = a_.mlp_rstd,
                   .eps = c_.norm_eps});
}

void DecoderBlock::gate_and_up() const {
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.mlp_normed, c_.scratch.gathered);  // [N,H]
    c_.run(Gemm::forward(x, w_[BlockStorage::gate_up], a_.gate_up, w_[BlockStorage::gate_up_bias]));
}

void DecoderBlock::activation() const {
    c_.run(Swiglu{.gate_up = a_.gate_up, .y = a_.activated});
}

Tensor DecoderBlock::down() const {
    c_.run(Gemm::forward(a_.activated, w_[BlockStorage::down], c_.scratch.branch,
                         on_one_rank(w_[BlockStorage::down_bias])));
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

// ----------------------------------------------------------------------------------------------------- backward

void DecoderBlock::backward(const UnitGradients& gradients, const Tensor& dresidual, Recompute policy) const {
    recompute(policy);
    feed_forward_backward(gradients, dresidual);
    attention_backward(gradients, dresidual);
}

void DecoderBlock::recompute(Recompute policy) const {
    if (policy == Recompute::none) return;
    first_norm({}, {});
    second_norm(policy == Recompute::full ? attention() : Tensor());
    if (policy != Recompute::selective) gate_and_up();
    activation();
}

Tensor DecoderBlock::branch_gradient(const Tensor& dresidual) const {
    Tensor d = dresidual;
    if (c_.scratch.dresidual_compute) {
        c_.run(Cast{.from = dresidual, .to = c_.scratch.dresidual_compute});
        d = c_.scratch.dresidual_compute;
    }
    return c_.parallel.enter(c_.run.stream, d, c_.scratch.gathered);
}

void DecoderBlock::feed_forward_backward(const UnitGradients& g, const Tensor& dresidual) const {
    const Tensor dy = branch_gradient(dresidual);  // [N,H]
    c_.run(Gemm::weight_gradient(dy, a_.activated, g.tensors[BlockStorage::down], g.accumulate));
    if (const Tensor& dbias = g.tensors[BlockStorage::down_bias])
        c_.run(BiasGradient{.dy = dy, .dbias = dbias, .accumulate = g.accumulate});
    c_.run(Gemm::data_gradient(dy, w_[BlockStorage::down], c_.scratch.dactivated));

    const Tensor dgate_up = a_.gate_up;  // its last use: the gradient takes its place
    c_.run(SwigluBackward{.gate_up = a_.gate_up, .dy = c_.scratch.dactivated, .dgate_up = dgate_up});

    const Tensor x = c_.parallel.enter(c_.run.stream, a_.mlp_normed, c_.scratch.gathered);  // [N,H]
    c_.run(Gemm::weight_gradient(dgate_up, x, g.tensors[BlockStorage::gate_up], g.accumulate));
    if (const Tensor& dbias = g.tensors[BlockStorage::gate_up_bias])
        c_.run(BiasGradient{.dy = dgate_up, .dbias = dbias, .accumulate = g.accumulate});
    c_.run(Gemm::data_gradient(dgate_up, w_[BlockStorage::gate_up], c_.scratch.branch));

    c_.run(RmsNormBackward{.dy = c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch),
                           .residual_out = a_.mid_residual,
                           .weight = w_[BlockStorage::mlp_norm],
                           .rstd = a_.mlp_rstd,
                           .dresidual_out = dresidual,
                           .dresidual = dresidual,
                           .dweight = g.tensors[BlockStorage::mlp_norm],
                           .accumulate = g.accumulate});
}

void DecoderBlock::attention_backward(const UnitGradients& g, const Tensor& dresidual) const {
    const BlockShape& s = c_.shape;
    const Tensor dy = branch_gradient(dresidual);  // [N,H]
    c_.run(Gemm::weight_gradient(dy, a_.attended, g.tensors[BlockStorage::attention_output], g.accumulate));
    if (const Tensor& dbias = g.tensors[BlockStorage::attention_output_bias])
        c_.run(BiasGradient{.dy = dy, .dbias = dbias, .accumulate = g.accumulate});
    c_.run(Gemm::data_gradient(dy, w_[BlockStorage::attention_output], c_.scratch.dattended));

    const QkvHeads heads(a_.qkv, s);
    const QkvHeads dheads(c_.scratch.dqkv, s);
    c_.run(AttentionBackward{.q = heads.q,
                             .k = heads.k,
                             .v = heads.v,
                             .out = a_.attended.split_columns(s.heads, s.head_dim),
                             .lse = a_.lse.view({s.rows, s.heads, s.row_length}),
                             .dout = c_.scratch.dattended.split_columns(s.heads, s.head_dim),
                             .dq = dheads.q,
                             .dk = dheads.k,
                             .dv = dheads.v,
                             .sequences = c_.batch.sequences,
                             .scale = attention_scale(s)});
    c_.run(Rope{.x = dheads.rotated,
                .cosine = c_.rope_cosine,
                .sine = c_.rope_sine,
                .positions = c_.batch.positions,
                .inverse = true});

    const Tensor& dqkv = c_.scratch.dqkv;
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.attention_normed, c_.scratch.gathered);  // [N,H]
    c_.run(Gemm::weight_gradient(dqkv, x, g.tensors[BlockStorage::qkv], g.accumulate));
    if (const Tensor& dbias = g.tensors[BlockStorage::qkv_bias])
        c_.run(BiasGradient{.dy = dqkv, .dbias = dbias, .accumulate = g.accumulate});
    c_.run(Gemm::data_gradient(dqkv, w_[BlockStorage::qkv], c_.scratch.branch));

    c_.run(RmsNormBackward{.dy = c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch),
                           .residual_out = a_.residual,
                           .weight = w_[BlockStorage::attention_norm],
                           .rstd = a_.attention_rstd,
                           .dresidual_out = dresidual,
                           .dresidual = dresidual,
                           .dweight = g.tensors[BlockStorage::attention_norm],
                           .accumulate = g.accumulate});
}

}  // namespace drover
