#include "backend/ops/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/ops/check_and_cost.h"

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

/// Checks what Attention and its gradient share: q, k, v and the statistics.
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

/// Pairs of a query and a key that it sees, over all rows and query heads.
double attended_pairs(const Sequences& sequences, std::int64_t window, std::int64_t heads) {
    const double length = static_cast<double>(sequences.row_length);
    const double seen = window > 0 ? std::min(static_cast<double>(window), length) : length;
    const double of_row = seen * (seen + 1) / 2 + (length - seen) * seen;
    return of_row * static_cast<double>(sequences.rows * heads);
}

double head_size(const Tensor& q) {
    return static_cast<double>(q.size(2));
}

}  // namespace

void Rope::check(const Operands& operands) const {
    operands.ranked("x", x, operands.activations(), 3);
    operands.holds(x.size(2) % 2 == 0, fmt::format("x is {}, expected an even head size", x.text()));
    operands.ranked("cosine", cosine, {f32}, 2);
    operands.shaped("cosine", cosine, {f32}, {cosine.size(0), x.size(2) / 2});
    operands.shaped("sine", sine, {f32}, cosine.shape());
    operands.shaped("positions", positions, {i32}, {x.size(0)});
}

OperationCost Rope::cost() const {
    return memory_bound("rotary positions", {x, positions}, {x});
}

void Attention::check(const Operands& operands) const {
    check_attention(operands, *this);
    operands.shaped("out", out, {q.dtype()}, q.shape());
}

OperationCost Attention::cost() const {
    return {.name = "attention",
            .flops = 4 * head_size(q) * attended_pairs(sequences, window, q.size(1)),
            .bytes = bytes_of({q, k, v, out, lse}),
            .arithmetic = q.dtype()};
}

void AttentionBackward::check(const Operands& operands) const {
    check_attention(operands, *this);
    const Types dtype = {q.dtype()};
    operands.shaped("out", out, dtype, q.shape());
    operands.shaped("dout", dout, dtype, q.shape());
    operands.shaped("dq", dq, dtype, q.shape());
    operands.shaped("dk", dk, dtype, k.shape());
    operands.shaped("dv", dv, dtype, k.shape());
}

OperationCost AttentionBackward::cost() const {
    return {.name = "attention backward",
            .flops = 10 * head_size(q) * attended_pairs(sequences, window, q.size(1)),
            .bytes = bytes_of({q, k, v, out, lse, dout, dq, dk, dv}),
            .arithmetic = q.dtype()};
}

void CachedAttention::check(const Operands& operands) const {
    operands.ranked("q", q, operands.activations(), 3);
    const DType dtype = q.dtype();
    const std::int64_t tokens = q.size(0), head_size = q.size(2);
    operands.ranked("k", k, {dtype}, 3);
    const std::int64_t kv_heads = k.size(1);
    operands.shaped("k", k, {dtype}, {tokens, kv_heads, head_size});
    operands.shaped("v", v, {dtype}, k.shape());
    operands.holds(kv_heads > 0 && q.size(1) % kv_heads == 0, "heads is not a multiple of kv_heads");
    operands.holds(head_size <= CachedAttention::largest_head, "the heads are too large");
    operands.ranked("key_cache", key_cache, {dtype}, 4);
    operands.shaped("key_cache", key_cache, {dtype},
                    {key_cache.size(0), key_cache.size(1), kv_heads, head_size});
    operands.shaped("value_cache", value_cache, {dtype}, key_cache.shape());
    operands.packed("key_cache", key_cache);
    operands.packed("value_cache", value_cache);
    operands.shaped("sequence_of", sequence_of, {i32}, {tokens});
    operands.shaped("positions", positions, {i32}, {tokens});
    operands.shaped("out", out, {dtype}, q.shape());
    operands.holds(window >= 0, "the window is negative");
}

OperationCost CachedAttention::cost() const {
    const std::int64_t capacity = key_cache.size(1);
    const std::int64_t seen = window > 0 ? std::min(window, capacity) : capacity;
    return {.name = "cached attention",
            .flops = 4 * static_cast<double>(q.numel()) * static_cast<double>(seen),
            .bytes = bytes_of({q, k, v, key_cache, value_cache, out}),
            .arithmetic = q.dtype()};
}

}  // namespace drover
