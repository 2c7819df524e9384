#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/operands.h"

namespace drover {
namespace {

void check_sequences(const Operands& operands, const Sequences& sequences, std::int64_t tokens) {
    operands.holds(sequences.tokens() == tokens,
                   fmt::format("sequences cover {} rows of {} tokens, but there are {} tokens",
                               sequences.rows, sequences.row_length, tokens));
    operands.holds(static_cast<bool>(sequences.begin) == static_cast<bool>(sequences.length),
                   "sequences have a begin or a length without the other");
    if (!sequences.begin) return;
    operands.ranked("sequences.begin", sequences.begin, {i32}, 1);
    operands.shaped("sequences.length", sequences.length, {i32}, sequences.begin.shape());
}

/// What Attention and its gradient have in common: q, k, v and the statistics.
template <class Operation>
void check_attention(const Operands& operands, const Operation& op) {
    operands.ranked("q", op.q, operands.activations(), 3);
    const DType dtype = op.q.dtype();
    const std::int64_t tokens = op.q.size(0), heads = op.q.size(1), head_size = op.q.size(2);
    operands.ranked("k", op.k, {dtype}, 3);
    const std::int64_t kv_heads = op.k.size(1);
    operands.shaped("k", op.k, {dtype}, {tokens, kv_heads, head_size});
    operands.shaped("v", op.v, {dtype}, {tokens, kv_heads, head_size});
    operands.holds(kv_heads > 0 && heads % kv_heads == 0,
                   fmt::format("{} query heads cannot share {} key/value heads", heads, kv_heads));
    operands.holds(op.window >= 0, "window is negative");
    check_sequences(operands, op.sequences, tokens);
    operands.shaped("lse", op.lse, {f32}, {op.sequences.rows, heads, op.sequences.row_length});
    operands.packed("lse", op.lse);
}

}  // namespace

// ------------------------------------------------------------------------------------------- matrix products

void Backend::check(const Gemm& op) const {
    const Operands operands("gemm", device());
    operands.ranked("a", op.a, operands.activations(), 2);
    const DType dtype = op.a.dtype();
    operands.ranked("b", op.b, {dtype}, 2);
    const std::int64_t rows = op.a.size(op.transpose_a ? 1 : 0), inner = op.a.size(op.transpose_a ? 0 : 1);
    const std::int64_t columns = op.b.size(op.transpose_b ? 0 : 1);
    operands.shaped("b", op.b, {dtype}, op.transpose_b ? Shape{columns, inner} : Shape{inner, columns});
    operands.shaped("c", op.c, {dtype, f32}, {rows, columns});
    operands.optional("bias", op.bias, {dtype, f32}, {columns});
}

void Backend::check(const BiasGradient& op) const {
    const Operands operands("bias_gradient", device());
    operands.ranked("dy", op.dy, operands.activations(), 2);
    operands.shaped("dbias", op.dbias, {op.dy.dtype(), f32}, {op.dy.size(1)});
}

// ---------------------------------------------------------------------------------------------- element-wise

void Backend::check(const Embedding& op) const {
    const Operands operands("embedding", device());
    operands.ranked("ids", op.ids, {i32}, 1);
    operands.ranked("weight", op.weight, operands.activations(), 2);
    operands.shaped("y", op.y, {op.weight.dtype(), f32}, {op.ids.size(0), op.weight.size(1)});
}

void Backend::check(const EmbeddingBackward& op) const {
    const Operands operands("embedding_backward", device());
    operands.ranked("ids", op.ids, {i32}, 1);
    operands.ranked("dweight", op.dweight, operands.activations(), 2);
    operands.shaped("dy", op.dy, operands.activations(), {op.ids.size(0), op.dweight.size(1)});
}

void Backend::check(const RmsNorm& op) const {
    const Operands operands("rms_norm", device());
    operands.ranked("y", op.y, operands.activations(), 2);
    const DType dtype = op.y.dtype();
    const Shape shape = op.y.shape();
    operands.optional("x", op.x, {dtype}, shape);
    operands.shaped("residual_in", op.residual_in, {dtype, f32}, shape);
    if (op.x) operands.shaped("residual_out", op.residual_out, {op.residual_in.dtype()}, shape);
    operands.shaped("weight", op.weight, {dtype, f32}, {shape[1]});
    operands.shaped("rstd", op.rstd, {f32}, {shape[0]});
}

void Backend::check(const RmsNormBackward& op) const {
    const Operands operands("rms_norm_backward", device());
    operands.ranked("dy", op.dy, operands.activations(), 2);
    const DType dtype = op.dy.dtype();
    const Shape shape = op.dy.shape();
    operands.shaped("residual_out", op.residual_out, {dtype, f32}, shape);
    operands.shaped("weight", op.weight, {dtype, f32}, {shape[1]});
    operands.shaped("rstd", op.rstd, {f32}, {shape[0]});
    operands.optional("dresidual_out", op.dresidual_out, {op.residual_out.dtype()}, shape);
    operands.shaped("dresidual", op.dresidual, {op.residual_out.dtype()}, shape);
    operands.shaped("dweight", op.dweight, operands.activations(), {shape[1]});
    operands.optional("y", op.y, {dtype}, shape);
}

void Backend::check(const Rope& op) const {
    const Operands operands("rope", device());
    operands.ranked("x", op.x, operands.activations(), 3);
    operands.holds(op.x.size(2) % 2 == 0, fmt::format("x is {}, expected an even head size", op.x.text()));
    operands.ranked("cosine", op.cosine, {f32}, 2);
    operands.shaped("cosine", op.cosine, {f32}, {op.cosine.size(0), op.x.size(2) / 2});
    operands.shaped("sine", op.sine, {f32}, op.cosine.shape());
    operands.shaped("positions", op.positions, {i32}, {op.x.size(0)});
}

void Backend::check(const Swiglu& op) const {
    const Operands operands("swiglu", device());
    operands.ranked("y", op.y, operands.activations(), 2);
    operands.shaped("gate_up", op.gate_up, {op.y.dtype()}, {op.y.size(0), 2 * op.y.size(1)});
}

void Backend::check(const SwigluBackward& op) const {
    const Operands operands("swiglu_backward", device());
    operands.ranked("dy", op.dy, operands.activations(), 2);
    const Shape twice = {op.dy.size(0), 2 * op.dy.size(1)};
    operands.shaped("gate_up", op.gate_up, {op.dy.dtype()}, twice);
    operands.shaped("dgate_up", op.dgate_up, {op.dy.dtype()}, twice);
    operands.optional("y", op.y, {op.dy.dtype()}, op.dy.shape());
}

// ------------------------------------------------------------------------------------------------- attention

void Backend::check(const Attention& op) const {
    const Operands operands("attention", device());
    check_attention(operands, op);
    operands.shaped("out", op.out, {op.q.dtype()}, op.q.shape());
}

void Backend::check(const AttentionBackward& op) const {
    const Operands operands("attention_backward", device());
    check_attention(operands, op);
    const Types dtype = {op.q.dtype()};
    operands.shaped("out", op.out, dtype, op.q.shape());
    operands.shaped("dout", op.dout, dtype, op.q.shape());
    operands.shaped("dq", op.dq, dtype, op.q.shape());
    operands.shaped("dk", op.dk, dtype, op.k.shape());
    operands.shaped("dv", op.dv, dtype, op.k.shape());
}

// --------------------------------------------------------------------------------------------- cross-entropy

void Backend::check(const CachedAttention& op) const {
    const Operands operands("cached_attention", device());
    operands.ranked("q", op.q, operands.activations(), 3);
    const DType dtype = op.q.dtype();
    const std::int64_t tokens = op.q.size(0), head_size = op.q.size(2);
    operands.ranked("k", op.k, {dtype}, 3);
    const std::int64_t kv_heads = op.k.size(1);
    operands.shaped("k", op.k, {dtype}, {tokens, kv_heads, head_size});
    operands.shaped("v", op.v, {dtype}, op.k.shape());
    operands.holds(kv_heads > 0 && op.q.size(1) % kv_heads == 0, "heads is not a multiple of kv_heads");
    operands.holds(head_size <= CachedAttention::largest_head, "the heads are too large");
    operands.ranked("key_cache", op.key_cache, {dtype}, 4);
    operands.shaped("key_cache", op.key_cache, {dtype},
                    {op.key_cache.size(0), op.key_cache.size(1), kv_heads, head_size});
    operands.shaped("value_cache", op.value_cache, {dtype}, op.key_cache.shape());
    operands.packed("key_cache", op.key_cache);
    operands.packed("value_cache", op.value_cache);
    operands.shaped("sequence_of", op.sequence_of, {i32}, {tokens});
    operands.shaped("positions", op.positions, {i32}, {tokens});
    operands.shaped("out", op.out, {dtype}, op.q.shape());
    operands.holds(op.window >= 0, "the window is negative");
}

void Backend::execute(Stream, const CachedAttention&) {
    throw Error(fmt::format("Generating text is not possible on this device ({}).", description()),
                "Generate on the CPU: --device cpu.");
}

void Backend::check(const CrossEntropyStatistics& op) const {
    const Operands operands("cross_entropy_statistics", device());
    operands.ranked("logits", op.logits, operands.activations(), 2);
    const Shape rows = {op.logits.size(0)};
    operands.shaped("targets", op.targets, {i32}, rows);
    operands.shaped("max", op.max, {f32}, rows);
    operands.shaped("sum_exp", op.sum_exp, {f32}, rows);
    operands.shaped("target_logit", op.target_logit, {f32}, rows);
    operands.shaped("argmax", op.argmax, {i32}, rows);
    operands.optional("logit_sum", op.logit_sum, {f32}, rows);
    operands.holds(op.logits.size(1) > 0, "logits have no columns");
}

void Backend::check(const CrossEntropyRescale& op) const {
    const Operands operands("cross_entropy_rescale", device());
    operands.ranked("max", op.max, {f32}, 1);
    operands.shaped("local_max", op.local_max, {f32}, op.max.shape());
    operands.shaped("sum_exp", op.sum_exp, {f32}, op.max.shape());
    operands.shaped("argmax", op.argmax, {i32}, op.max.shape());
}

void Backend::check(const CrossEntropyGradient& op) const {
    const Operands operands("cross_entropy_gradient", device());
    operands.ranked("logits", op.logits, operands.activations(), 2);
    const Shape rows = {op.logits.size(0)};
    operands.shaped("targets", op.targets, {i32}, rows);
    operands.shaped("max", op.max, {f32}, rows);
    operands.shaped("sum_exp", op.sum_exp, {f32}, rows);
    operands.shaped("target_logit", op.target_logit, {f32}, rows);
    operands.shaped("loss", op.loss, {f32}, rows);
    operands.optional("scale", op.scale, {f32}, {1});
    operands.holds(op.smoothing >= 0 && op.smoothing <= 1, "smoothing is not between 0 and 1");
    if (op.smoothing == 0) return;
    operands.shaped("logit_sum", op.logit_sum, {f32}, rows);
    operands.holds(op.vocabulary >= op.logits.size(1),
                   "the vocabulary is smaller than the part of it that is held");
}

// --------------------------------------------------------------------------------------------------- general

void Backend::check(const Fill& op) const {
    const Operands operands("fill", device());
    operands.typed("x", op.x, {op.x.dtype()});
}

void Backend::check(const Cast& op) const {
    const Operands operands("cast", device());
    operands.typed("from", op.from, any_precision);
    operands.shaped("to", op.to, any_precision, op.from.shape());
    operands.holds(op.to.rank() <= 2 || (op.from.packed() && op.to.packed()),
                   "strided operands of more than two dimensions");
}

void Backend::check(const Add& op) const {
    const Operands operands("add", device());
    operands.typed("into", op.into, any_precision);
    operands.shaped("x", op.x, any_precision, op.into.shape());
    operands.packed("into", op.into);
    operands.packed("x", op.x);
}

void Backend::check(const Sum& op) const {
    const Operands operands("sum", device());
    operands.ranked("x", op.x, {f32, f64}, 1);
    operands.shaped("out", op.out, {f64}, {1});
}

}  // namespace drover
