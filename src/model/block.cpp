#include "model/block.h"

#include <cmath>
#include <optional>
#include <utility>

#include "core/counter_rng.h"
#include "model/config.h"
#include "model/feed_forward.h"

namespace drover {
namespace {

/// q, k and v as heads.
struct QkvHeads {
    Tensor q;          ///< [N,heads,D]
    Tensor k, v;       ///< [N,kv_heads,D]
    Tensor query_key;  ///< [N,heads + kv_heads,D]: q and k, which are adjacent

    /// Of the packed q‖k‖v [N,(heads + 2·kv_heads)·D]. `other` [N,(heads + kv_heads)·D], if present, holds q
    /// and k instead.
    QkvHeads(const Tensor& qkv, const BlockShape& s, const Tensor& other = {}) {
        const Tensor& both = other ? other : qkv;
        q = both.columns(0, s.query_columns()).split_columns(s.heads, s.head_dim);
        k = both.columns(s.query_columns(), s.key_value_columns()).split_columns(s.kv_heads, s.head_dim);
        v = qkv.columns(s.query_key_columns(), s.key_value_columns()).split_columns(s.kv_heads, s.head_dim);
        query_key = both.columns(0, s.query_key_columns()).split_columns(s.heads + s.kv_heads, s.head_dim);
    }
};

float attention_scale(const BlockShape& shape) {
    return 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
}

}  // namespace

template <class Use>
auto DecoderBlock::with_feed_forward(const Use& use) const {
    if (w_[BlockStorage::router]) return use(ExpertFeedForward(c_, w_, a_, index_));
    return use(DenseFeedForward(c_, w_, a_, index_));
}

Scope DecoderBlock::feed_forward_scope() const {
    return c_.run.scope(w_[BlockStorage::router] ? "MixtralSparseMoeBlock" : "MLP");
}

// -----------------------------------------------------------------------------------------------------
// forward

Tensor DecoderBlock::forward(const Tensor& stream, const Tensor& branch) const {
    WeightProduct::prepare_weights(c_, w_, a_);
    first_norm(stream, branch);
    second_norm(attention(true));
    const Scope scope = feed_forward_scope();
    return with_feed_forward([](const auto& feed_forward) { return feed_forward.forward(); });
}

void DecoderBlock::first_norm(const Tensor& stream, const Tensor& branch) const {
    const Scope scope = c_.run.scope("RMSNorm");
    c_.run(RmsNorm{.x = branch,
                   .residual_in = stream ? stream : a_.residual,
                   .residual_out = a_.residual,
                   .weight = w_[BlockStorage::attention_norm],
                   .y = a_.attention_normed,
                   .rstd = a_.attention_rstd,
                   .maximum = a_.fp8.maximum(AdaptedMatrix::qkv, Fp8Operand::input),
                   .eps = c_.norm_eps});
}

Tensor DecoderBlock::attention(bool attends) const {
    const Scope scope = c_.run.scope("Attention");
    const BlockShape& s = c_.shape;
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.attention_normed, c_.scratch.gathered);  // [N,H]
    product(BlockStorage::qkv).forward(x, a_.qkv, w_[BlockStorage::qkv_bias]);

    norm_heads();
    rotate(QkvHeads(a_.qkv, s, a_.query_key).query_key);
    if (attends && c_.cache != nullptr)
        attend_to_cache();
    else if (attends)
        attend();

    product(BlockStorage::attention_output)
        .forward(a_.attended, c_.scratch.branch, c_.on_one_rank(w_[BlockStorage::attention_output_bias]));
    if (a_.attention_output) c_.run.backend.copy(c_.run.stream, c_.scratch.branch, a_.attention_output);
    return c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);  // [held,H]
}

void DecoderBlock::rotate(const Tensor& x, bool back) const {
    const Scope call = c_.run.scope("rotary_emb"), scope = c_.run.scope("RotaryEmbedding");
    c_.run(Rope{.x = x,
                .cosine = c_.rope_cosine,
                .sine = c_.rope_sine,
                .positions = c_.batch.positions,
                .inverse = back});
}

void DecoderBlock::norm_heads() const {
    if (!a_.query_key) return;
    const QkvHeads from(a_.qkv, c_.shape), to(a_.qkv, c_.shape, a_.query_key);
    c_.run(HeadNorm{.x = from.q, .weight = w_[BlockStorage::query_norm], .y = to.q, .eps = c_.norm_eps});
    c_.run(HeadNorm{.x = from.k, .weight = w_[BlockStorage::key_norm], .y = to.k, .eps = c_.norm_eps});
}

void DecoderBlock::attend() const {
    const BlockShape& s = c_.shape;
    const QkvHeads heads(a_.qkv, s, a_.query_key);
    c_.run(Attention{.q = heads.q,
                     .k = heads.k,
                     .v = heads.v,
                     .out = a_.attended.split_columns(s.heads, s.head_dim),
                     .lse = a_.lse.view({s.rows, s.heads, s.row_length}),
                     .sequences = c_.batch.sequences,
                     .scale = attention_scale(s),
                     .window = c_.config.window_of(index_)});
}

void DecoderBlock::attend_to_cache() const {
    const BlockShape& s = c_.shape;
    const QkvHeads heads(a_.qkv, s, a_.query_key);
    const auto block = static_cast<std::size_t>(index_);
    c_.run(CachedAttention{.q = heads.q,
                           .k = heads.k,
                           .v = heads.v,
                           .key_cache = c_.cache->keys[block],
                           .value_cache = c_.cache->values[block],
                           .sequence_of = c_.cache->sequence_of,
                           .positions = c_.batch.positions,
                           .out = a_.attended.split_columns(s.heads, s.head_dim),
                           .scale = attention_scale(s),
                           .window = c_.config.window_of(index_)});
}

void DecoderBlock::second_norm(const Tensor& branch) const {
    const Scope scope = c_.run.scope("RMSNorm");
    c_.run(RmsNorm{
        .x = branch,
        .residual_in = branch ? a_.residual : a_.mid_residual,
        .residual_out = a_.mid_residual,
        .weight = w_[BlockStorage::mlp_norm],
        .y = a_.mlp_normed,
        .rstd = a_.mlp_rstd,
        .maximum = c_.jitters() ? Tensor() : a_.fp8.maximum(AdaptedMatrix::gate_up, Fp8Operand::input),
        .eps = c_.norm_eps});
    jitter(a_.mlp_normed);
}

void DecoderBlock::jitter(const Tensor& x) const {
    if (!c_.jitters()) return;
    const TokenNoise& noise = *c_.batch.noise;
    constexpr std::uint64_t name = leaf_hash("router_jitter_noise");
    c_.run(JitterTokens{
        .x = x,
        .scalars = noise.scalars,
        .first_token = noise.first_token + c_.first_held(),
        .amplitude = c_.jitter,
        .seed = noise.seed,
        .leaf = philox_stream(philox_stream(name, static_cast<std::uint64_t>(index_)), noise.micro_batch)});
}

// ----------------------------------------------------------------------------------------------------
// backward

void DecoderBlock::backward(const UnitGradients& gradients, const Tensor& dresidual, Recompute policy,
                            BackwardPart part) const {
    recompute(policy);
    feed_forward_backward(gradients, dresidual, policy, part);
    attention_backward(gradients, dresidual, policy, part);
}

void DecoderBlock::weight_gradients(const UnitGradients& g) const {
    if (a_.dmlp_branch) {
        const Scope scope = feed_forward_scope();
        DenseFeedForward(c_, w_, a_, index_).weight_gradients(g, a_.dmlp_branch);
    }
    const Scope scope = c_.run.scope("Attention");
    product(BlockStorage::attention_output).begin_weight_gradient(g, a_.dattention_branch);
    attention_output_gradient(g, a_.dattention_branch);
    product(BlockStorage::qkv).begin_weight_gradient(g, a_.dqkv);
    qkv_gradient(g, a_.dqkv);
}

void DecoderBlock::recompute(Recompute policy) const {
    if (policy == Recompute::none) return;
    const Scope again = c_.run.scope("recompute");
    if (starts_at_input(policy)) {
        first_norm({}, {});
        second_norm(attention(policy == Recompute::full));
    } else {
        second_norm({});
    }
    const Scope scope = feed_forward_scope();
    with_feed_forward([&](const auto& feed_forward) { feed_forward.recompute(policy); });
}

Tensor DecoderBlock::branch_gradient(const Tensor& dresidual, const Tensor& kept) const {
    Tensor d = dresidual;
    if (c_.scratch.dresidual_compute) {
        c_.run(Cast{.from = dresidual, .to = c_.scratch.dresidual_compute});
        d = c_.scratch.dresidual_compute;
    }
    const Tensor whole = c_.parallel.enter(c_.run.stream, d, kept ? kept : c_.scratch.gathered);
    if (!kept || c_.parallel.splits_tokens()) return whole;
    c_.run.backend.copy(c_.run.stream, whole, kept);
    return kept;
}

void DecoderBlock::feed_forward_backward(const UnitGradients& g, const Tensor& dresidual, Recompute policy,
                                         BackwardPart part) const {
    Tensor dnormed;  // [held,H]
    {
        const Scope scope = feed_forward_scope();
        const Tensor kept = part == BackwardPart::input ? a_.dmlp_branch : Tensor();
        const Tensor dy = branch_gradient(dresidual, kept);  // [N,H]
        dnormed = with_feed_forward(
            [&](const auto& feed_forward) { return feed_forward.backward(g, dy, policy, part); });
        jitter(dnormed);
    }
    const Scope scope = c_.run.scope("RMSNorm");
    c_.run(RmsNormBackward{.dy = dnormed,
                           .residual_out = a_.mid_residual,
                           .weight = w_[BlockStorage::mlp_norm],
                           .rstd = a_.mlp_rstd,
                           .dresidual_out = dresidual,
                           .dresidual = dresidual,
                           .dweight = g.tensors[BlockStorage::mlp_norm],
                           .accumulate = g.accumulate});
}

void DecoderBlock::norm_heads_backward(const UnitGradients& g, const Tensor& dqkv) const {
    if (!a_.query_key) return;
    const QkvHeads heads(a_.qkv, c_.shape), dheads(dqkv, c_.shape);
    const auto backward = [&](const Tensor& x, const Tensor& dx, BlockStorage::Index weight) {
        c_.run(HeadNormBackward{.dy = dx,
                                .x = x,
                                .weight = w_[weight],
                                .dx = dx,
                                .dweight = g.tensors[weight],
                                .eps = c_.norm_eps,
                                .accumulate = g.accumulate});
    };
    backward(heads.q, dheads.q, BlockStorage::query_norm);
    backward(heads.k, dheads.k, BlockStorage::key_norm);
}

void DecoderBlock::attention_output_gradient(const UnitGradients& g, const Tensor& dy) const {
    product(BlockStorage::attention_output).weight_gradient(g, dy, a_.attended);
    c_.bias_gradient(g, dy, BlockStorage::attention_output_bias);
}

void DecoderBlock::qkv_gradient(const UnitGradients& g, const Tensor& dqkv) const {
    if (!g.tensors[BlockStorage::qkv] && !g.tensors[BlockStorage::qkv_bias]) return;
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.attention_normed, c_.scratch.gathered);  // [N,H]
    product(BlockStorage::qkv).weight_gradient(g, dqkv, x);
    c_.bias_gradient(g, dqkv, BlockStorage::qkv_bias);
}

void DecoderBlock::qkv_adapter_gradients(const UnitGradients& g, const Tensor& dqkv) const {
    const AdaptedProduct qkv = product(BlockStorage::qkv);
    if (!qkv.has_adapters()) return;
    const Tensor x = c_.parallel.enter(c_.run.stream, a_.attention_normed, c_.scratch.gathered);  // [N,H]
    qkv.adapter_gradients(g, dqkv, x);
}

void DecoderBlock::attention_backward(const UnitGradients& g, const Tensor& dresidual, Recompute policy,
                                      BackwardPart part) const {
    const BlockShape& s = c_.shape;
    std::optional<Scope> scope(std::in_place, c_.run.backend, c_.run.stream, "Attention");
    const bool weights_wait = part == BackwardPart::input;
    const Tensor dy = branch_gradient(dresidual, weights_wait ? a_.dattention_branch : Tensor());  // [N,H]
    const AdaptedProduct output = product(BlockStorage::attention_output);
    const Tensor doutput =
        output.begin_backward(g, dy, part, a_.attention_output,
                              c_.on_one_rank(w_[BlockStorage::attention_output_bias]), c_.scratch.scaled);
    if (!weights_wait) attention_output_gradient(g, dy);
    output.data_gradient(doutput, c_.scratch.dattended);
    output.adapter_gradients(g, doutput, a_.attended);

    const Tensor dqkv = weights_wait ? a_.dqkv : c_.scratch.dqkv;
    const QkvHeads heads(a_.qkv, s, a_.query_key);
    const QkvHeads dheads(dqkv, s);
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
                             .scale = attention_scale(s),
                             .window = c_.config.window_of(index_)});
    rotate(dheads.query_key, true);
    norm_heads_backward(g, dqkv);
    // What the product gave, for DoRA: forward has rotated it in place.
    if (a_.adapted_lengths(AdaptedMatrix::qkv) && !a_.query_key) rotate(heads.query_key, true);
    const AdaptedProduct qkv = product(BlockStorage::qkv);
    qkv.begin_backward(g, dqkv, part, a_.qkv, w_[BlockStorage::qkv_bias], dqkv);
    qkv.data_gradient(dqkv, c_.scratch.branch);

    const bool normed_is_there = policy == Recompute::none || starts_at_input(policy);
    const Tensor dnormed = c_.parallel.leave(c_.run.stream, c_.scratch.branch, c_.scratch.held_branch);
    scope.emplace(c_.run.backend, c_.run.stream, "RMSNorm");
    c_.run(RmsNormBackward{.dy = dnormed,
                           .residual_out = a_.residual,
                           .weight = w_[BlockStorage::attention_norm],
                           .rstd = a_.attention_rstd,
                           .dresidual_out = dresidual,
                           .dresidual = dresidual,
                           .dweight = g.tensors[BlockStorage::attention_norm],
                           .y = normed_is_there ? Tensor() : a_.attention_normed,
                           .accumulate = g.accumulate});
    scope.emplace(c_.run.backend, c_.run.stream, "Attention");
    qkv_adapter_gradients(g, dqkv);
    if (!weights_wait) qkv_gradient(g, dqkv);
}

}  // namespace drover
