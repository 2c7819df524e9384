#pragma once

#include <span>

#include "backend/moe_ops.h"
#include "backend/optimizer_ops.h"
#include "core/tensor.h"

/// The list of operations. Each is a small struct of named operands with its shapes beside it; a backend runs it
/// (backend.h). N = tokens of a micro-batch, H = hidden size, D = head size, V = vocabulary rows held here.
/// Unless a comment says otherwise, an output may not overlap an input. Only optional operands have an initialiser, so
/// the compiler's warning about missing ones finds a required operand that was left out.
namespace drover {

// ---------------------------------------------------------------------------------------------- matrix products

/// c = op(a) · op(b) (+ bias) (+ c if accumulate), products summed in fp32.
/// a and b have the same dtype (f32 or bf16, on a GPU also f16, as everywhere below); c has that dtype or f32.
struct Gemm {
    Tensor a;       ///< [M,K], or [K,M] when transpose_a
    Tensor b;       ///< [K,N], or [N,K] when transpose_b
    Tensor c;       ///< [M,N]
    Tensor bias{};  ///< [N], optional; added to every row
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;

    /// y[N,out] = x[N,in] · weight[out,in]ᵀ (+ bias[out])
    static Gemm forward(Tensor x, Tensor weight, Tensor y, Tensor bias = {}) {
        return {.a = x, .b = weight, .c = y, .bias = bias, .transpose_b = true};
    }
    /// dx[N,in] = dy[N,out] · weight[out,in]
    static Gemm data_gradient(Tensor dy, Tensor weight, Tensor dx) { return {.a = dy, .b = weight, .c = dx}; }
    /// dweight[out,in] (+)= dy[N,out]ᵀ · x[N,in]
    static Gemm weight_gradient(Tensor dy, Tensor x, Tensor dweight, bool accumulate) {
        return {.a = dy, .b = x, .c = dweight, .transpose_a = true, .accumulate = accumulate};
    }
};

/// dbias (+)= sum over rows of dy, in fp32.
struct BiasGradient {
    Tensor dy;     ///< [N,C]
    Tensor dbias;  ///< [C], dtype of dy or f32
    bool accumulate = false;
};

// ------------------------------------------------------------------------------------------------- element-wise

/// y = weight[id − first_id], or zeros for an id outside [first_id, first_id + V).
struct Embedding {
    Tensor ids;     ///< [N] i32
    Tensor weight;  ///< [V,H]
    Tensor y;       ///< [N,H], dtype of weight or f32
    std::int64_t first_id = 0;
};

/// dweight[id − first_id] += dy (after zeroing dweight unless accumulate). Ids outside the range and padding_id
/// get nothing. The order of the additions is fixed.
struct EmbeddingBackward {
    Tensor ids;      ///< [N] i32
    Tensor dy;       ///< [N,H]
    Tensor dweight;  ///< [V,H], f32 or bf16; a row's sum is made in fp32 and rounded once
    std::int64_t first_id = 0;
    std::int64_t padding_id = -1;
    bool accumulate = false;
};

/// residual_out = residual_in + x (when x is given), rounded to the residual's dtype;
/// y = round(residual_out · rstd) · weight with rstd = rsqrt(mean(residual_out²) + eps); statistics in fp32. The inner
/// rounding is to the residual's dtype (none when that is f32), as in Hugging Face's module; the product is rounded to y's.
/// Without x, residual_out is not written and may be absent.
struct RmsNorm {
    Tensor x{};             ///< [N,H], optional, dtype of y
    Tensor residual_in;     ///< [N,H], dtype of y or f32
    Tensor residual_out{};  ///< [N,H], dtype of residual_in; may alias residual_in
    Tensor weight;          ///< [H], dtype of y or f32
    Tensor y;               ///< [N,H]
    Tensor rstd;            ///< [N] f32
    float eps = 0;
};

/// dresidual = dresidual_out + d(norm)/d(residual_out)ᵀ · dy; dweight (+)= sum over rows of dy · residual_out · rstd.
struct RmsNormBackward {
    Tensor dy;               ///< [N,H]
    Tensor residual_out;     ///< [N,H], what the forward normalised
    Tensor weight;           ///< [H]
    Tensor rstd;             ///< [N] f32
    Tensor dresidual_out{};  ///< [N,H], optional: gradient that arrives through the residual stream
    Tensor dresidual;        ///< [N,H], dtype of residual_out; may alias dresidual_out
    Tensor dweight;          ///< [H], f32 or bf16; summed in fp32 and rounded once
    Tensor y{};              ///< [N,H], dtype of dy, optional: what the forward gave, made again
    bool accumulate = false;
};

/// Rotates every head of x in place by its token's angle (half-split layout: element i pairs with i + D/2);
/// `inverse` rotates back, which is also the gradient.
struct Rope {
    Tensor x;          ///< [N,heads,D], may be strided (a column range of the packed q‖k‖v)
    Tensor cosine;     ///< [P,D/2] f32, one row per position
    Tensor sine;       ///< [P,D/2] f32
    Tensor positions;  ///< [N] i32, each < P
    bool inverse = false;
};

/// y = silu(gate) · up, computed in fp32 and rounded as Hugging Face rounds: silu, then the product.
struct Swiglu {
    Tensor gate_up;  ///< [N,2I], gate in the first I columns
    Tensor y;        ///< [N,I]
};

/// dgate‖dup from dy; dgate_up may alias gate_up.
struct SwigluBackward {
    Tensor gate_up;   ///< [N,2I]
    Tensor dy;        ///< [N,I]
    Tensor dgate_up;  ///< [N,2I]
    Tensor y{};       ///< [N,I], optional: what the forward gave, made again
};

// ---------------------------------------------------------------------------------------------------- attention

/// How the N tokens of a micro-batch fall into sequences: `rows` rows of `row_length` tokens. Without begin and
/// length each row is one sequence. With them, sequence s is the `length[s]` tokens from flat index `begin[s]`,
/// inside one row (right padding: one shorter sequence per row; packing: several per row). Tokens in no
/// sequence attend to nothing: their output and gradients are zero. What they hold in inputs must be finite.
struct Sequences {
    std::int64_t rows = 0;
    std::int64_t row_length = 0;
    Tensor begin{};   ///< [S] i32, ascending, optional
    Tensor length{};  ///< [S] i32, optional

    std::int64_t tokens() const { return rows * row_length; }
};

/// Causal attention with grouped key/value heads; query head h reads key/value head h / (heads / kv_heads).
/// A query sees itself and the `window − 1` tokens before it (all of its past when window is 0). Never writes T×T.
struct Attention {
    Tensor q;    ///< [N,heads,D], may be strided
    Tensor k;    ///< [N,kv_heads,D], may be strided
    Tensor v;    ///< [N,kv_heads,D], may be strided
    Tensor out;  ///< [N,heads,D]
    Tensor lse;  ///< [rows,heads,row_length] f32: log of the sum of exponentials, kept for backward
    Sequences sequences;
    float scale = 1;
    std::int64_t window = 0;
};

/// Gradients of Attention; dq, dk, dv may be strided, and are overwritten.
struct AttentionBackward {
    Tensor q, k, v;     ///< as in Attention
    Tensor out;         ///< [N,heads,D]
    Tensor lse;         ///< [rows,heads,row_length] f32
    Tensor dout;        ///< [N,heads,D]
    Tensor dq;          ///< [N,heads,D]
    Tensor dk, dv;      ///< [N,kv_heads,D]
    Sequences sequences;
    float scale = 1;
    std::int64_t window = 0;
};

/// Attention of new tokens to what their sequences were so far, for generation. The new tokens' keys and values are first put
/// into the cache at their positions; then each query sees what its sequence has in the cache up to its own position, within
/// the window. A token's result does not depend on which others are computed with it. No gradient.
struct CachedAttention {
    Tensor q;                       ///< [N,heads,D], may be strided
    Tensor k, v;                    ///< [N,kv_heads,D], may be strided
    Tensor key_cache, value_cache;  ///< [sequences,capacity,kv_heads,D]
    Tensor sequence_of;             ///< [N] i32: the sequence that a token belongs to
    Tensor positions;               ///< [N] i32, each < capacity; all before it are in the cache or among the new tokens
    Tensor out;                     ///< [N,heads,D]
    float scale = 1;
    std::int64_t window = 0;

    static constexpr std::int64_t largest_head = 512;  ///< D
};

// ------------------------------------------------------------------------------------------------ cross-entropy

/// Target value of a position that has no target.
inline constexpr std::int32_t ignored_target = -100;

/// First of two steps: what each row of logits contributes. A head that holds only the vocabulary rows
/// [first_id, first_id + V) leaves statistics that are then reduced over the ranks of that axis.
struct CrossEntropyStatistics {
    Tensor logits;        ///< [R,V]
    Tensor targets;       ///< [R] i32, ignored_target where there is none
    Tensor max;           ///< [R] f32
    Tensor sum_exp;       ///< [R] f32: sum of exp(logit − max)
    Tensor target_logit;  ///< [R] f32: 0 when the target is ignored or not held here
    Tensor argmax;        ///< [R] i32, global id; the lowest one on ties
    Tensor logit_sum{};   ///< [R] f32, optional: sum of the logits, which label smoothing needs
    std::int64_t first_id = 0;
};

/// Between the two steps, where the vocabulary is spread over ranks: max is reduced over them by its maximum, then this
/// rank's sums are brought to that maximum, and then sum_exp, target_logit and logit_sum are reduced by sum and argmax by minimum.
struct CrossEntropyRescale {
    Tensor local_max;  ///< [R] f32: this rank's own
    Tensor max;        ///< [R] f32: over all ranks
    Tensor sum_exp;    ///< [R] f32, multiplied by exp(local_max − max); 0 where this rank holds no vocabulary
    Tensor argmax;     ///< [R] i32, becomes the largest integer where another rank's logit is larger
};

/// Second step: loss[r] = log(sum_exp) + max − target_logit (0 where ignored); and, when `scale` is given, the
/// logits are replaced by scale · (softmax − one-hot), zero in ignored rows. With label smoothing the target is not the one-hot
/// vector but (1 − smoothing) · one-hot + smoothing / vocabulary, as Hugging Face's LabelSmoother has it.
struct CrossEntropyGradient {
    Tensor logits;        ///< [R,V], replaced in place by its gradient
    Tensor targets;       ///< [R] i32
    Tensor max;           ///< [R] f32
    Tensor sum_exp;       ///< [R] f32
    Tensor target_logit;  ///< [R] f32
    Tensor loss;          ///< [R] f32
    Tensor scale{};       ///< [1] f32, optional: absent in evaluation
    std::int64_t first_id = 0;
    float smoothing = 0;
    Tensor logit_sum{};           ///< [R] f32, only with smoothing
    std::int64_t vocabulary = 0;  ///< rows of the whole vocabulary, only with smoothing
};

// ------------------------------------------------------------------------------------------------------ general

/// Every element becomes `value` (floating types, or integers for integer tensors). May be strided.
struct Fill {
    Tensor x;
    double value = 0;
};

/// to = from, converted to to's dtype. f32, bf16 or f16; rank ≤ 2 may be strided.
struct Cast {
    Tensor from;
    Tensor to;
};

/// into += x, summed in fp32 and rounded to into's dtype. Both packed.
struct Add {
    Tensor into;
    Tensor x;
};

/// out = (accumulate ? out : 0) + scale · sum of x, in f64, in a fixed order.
struct Sum {
    Tensor x;    ///< [n] f32 or f64
    Tensor out;  ///< [1] f64
    bool accumulate = false;
    double scale = 1;
};

}  // namespace drover
