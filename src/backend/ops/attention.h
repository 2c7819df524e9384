#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Attention, and the rotation of its queries and keys by their positions.
namespace drover {

/// Rotates every head of x in place by its token's angle (half-split layout: element i pairs with i + D/2);
/// `inverse` rotates back, which is also the gradient.
struct Rope {
    Tensor x;          ///< [N,heads,D], may be strided (a column range of the packed q‖k‖v)
    Tensor cosine;     ///< [P,D/2] f32, one row per position
    Tensor sine;       ///< [P,D/2] f32
    Tensor positions;  ///< [N] i32, each < P
    bool inverse = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// How the N tokens of a micro-batch fall into sequences: `rows` rows of `row_length` tokens. Without begin
/// and length each row is one sequence. With them, sequence s is the `length[s]` tokens from flat index
/// `begin[s]`, inside one row (right padding: one shorter sequence per row; packing: several per row). Tokens
/// in no sequence attend to nothing: their output and gradients are zero. Their inputs must still be finite.
struct Sequences {
    std::int64_t rows = 0;
    std::int64_t row_length = 0;
    Tensor begin{};   ///< [S] i32, ascending, optional
    Tensor length{};  ///< [S] i32, optional

    std::int64_t tokens() const { return rows * row_length; }
};

/// Causal attention with grouped key/value heads; query head h reads key/value head h / (heads / kv_heads).
/// A query sees itself and the `window − 1` tokens before it (all of its past when window is 0). Never writes
/// T×T.
struct Attention {
    Tensor q;    ///< [N,heads,D], may be strided
    Tensor k;    ///< [N,kv_heads,D], may be strided
    Tensor v;    ///< [N,kv_heads,D], may be strided
    Tensor out;  ///< [N,heads,D]
    Tensor lse;  ///< [rows,heads,row_length] f32: log of the sum of exponentials, kept for backward
    Sequences sequences;
    float scale = 1;
    std::int64_t window = 0;

    void check(const Operands& operands) const;
    /// Counts the pairs of a query and a key it sees, in full rows: where padding or packing cuts them is
    /// known to the device only. Two products per pair, and five in backward, although a backward that
    /// recomputes the scores does more.
    OperationCost cost() const;
};

/// Gradients of Attention; dq, dk, dv may be strided, and are overwritten.
struct AttentionBackward {
    Tensor q, k, v;  ///< as in Attention
    Tensor out;      ///< [N,heads,D]
    Tensor lse;      ///< [rows,heads,row_length] f32
    Tensor dout;     ///< [N,heads,D]
    Tensor dq;       ///< [N,heads,D]
    Tensor dk, dv;   ///< [N,kv_heads,D]
    Sequences sequences;
    float scale = 1;
    std::int64_t window = 0;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// Attention of new tokens to their sequences so far, for generation. The new tokens' keys and values are
/// first put into the cache at their positions; then each query sees what its sequence has in the cache up to
/// its own position, within the window. A token's result does not depend on which others are computed with
/// it. No gradient.
struct CachedAttention {
    Tensor q;                       ///< [N,heads,D], may be strided
    Tensor k, v;                    ///< [N,kv_heads,D], may be strided
    Tensor key_cache, value_cache;  ///< [sequences,capacity,kv_heads,D]
    Tensor sequence_of;             ///< [N] i32: the sequence that a token belongs to
    Tensor positions;  ///< [N] i32, each < capacity; all before it are in the cache or among the new tokens
    Tensor out;        ///< [N,heads,D]
    float scale = 1;
    std::int64_t window = 0;

    static constexpr std::int64_t largest_head = 512;  ///< D

    void check(const Operands& operands) const;
    /// The sequences' lengths are known only to the device, so this assumes that they fill the cache or the
    /// window.
    OperationCost cost() const;
};

}  // namespace drover
