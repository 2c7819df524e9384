#pragma once

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Operations of a mixture of experts. Every token chooses k of E experts. A *slot* is one choice: token n's
/// slots are n·W … n·W + W − 1, where W = k, or W = E when every expert is given every token (slot e of a
/// token is then expert e, with weight 0 unless it was chosen). A *row* is a slot's place when all slots are
/// sorted by expert; the M = N·W rows of expert e are [offsets[e], offsets[e + 1]).
namespace drover {

/// x *= U(1 − amplitude, 1 + amplitude), element by element, in fp32, rounded once. The noise is that of
/// CounterRng(seed, t).uniform(leaf, element of the matrix of all tokens), so forward and backward multiply
/// by the same one and no layout of tokens over ranks changes it. `added`: x += U(−amplitude, amplitude)
/// instead.
struct JitterTokens {
    Tensor x;                      ///< [n,H], packed, in place
    Tensor scalars;                ///< [StepScalar::count] f32; t is read from it
    std::int64_t first_token = 0;  ///< index of x's first row among all tokens
    float amplitude = 0;
    std::uint64_t seed = 0;
    std::uint64_t leaf = 0;
    bool added = false;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// probabilities = softmax(logits) in fp32; the k largest (lowest expert first on ties) are chosen, and their
/// probabilities divided by their sum are the weights. With `choices` and `probability_sums`, what the
/// balance loss needs is added to them: how often expert e was a token's j-th choice, and the sum of its
/// probabilities, over the tokens that count.
struct Router {
    Tensor logits;            ///< [N,E] f32
    Tensor counts;            ///< [N] i32, optional: 0 for a token that does not count (padding)
    Tensor probabilities;     ///< [N,E] f32
    Tensor experts;           ///< [N,W] i32
    Tensor weights;           ///< [N,W] f32
    Tensor choices;           ///< [k,E] f64, optional
    Tensor probability_sums;  ///< [E] f64, optional
    std::int64_t chosen = 0;  ///< k

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// Gradient of the router's logits from that of its weights and, with `balance`, of the balance loss: every
/// token that counts gets balance[e] as an additional gradient of its probability of expert e.
struct RouterBackward {
    Tensor probabilities;  ///< [N,E] f32
    Tensor experts;        ///< [N,W] i32
    Tensor weights;        ///< [N,W] f32
    Tensor dweights;       ///< [N,W] f32
    Tensor counts;         ///< [N] i32, optional
    Tensor balance;        ///< [E] f32, optional
    Tensor dlogits;        ///< [N,E] f32 or bf16

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// loss = coefficient · E · Σ_j Σ_e f[j,e] · P[e] with f and P the means of what the routers summed up over n
/// tokens (of all layers); and balance[e] = scale · coefficient · E · Σ_j f[j,e] / n, its gradient with
/// respect to one token's probability.
struct BalanceLoss {
    Tensor choices;           ///< [k,E] f64
    Tensor probability_sums;  ///< [E] f64
    Tensor loss;              ///< [1] f64
    Tensor balance;           ///< [E] f32
    double coefficient = 0;
    double scale = 1;  ///< of the gradient

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// Sorts the slots by expert, keeping their order within one.
struct SortByExpert {
    Tensor experts;      ///< [N,W] i32
    Tensor offsets;      ///< [E + 1] i32
    Tensor row_of_slot;  ///< [N·W] i32
    Tensor slot_of_row;  ///< [N·W] i32

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// rows[r] = x[slot_of_row[r] / W]
struct TokensToRows {
    Tensor x;            ///< [N,H]
    Tensor slot_of_row;  ///< [M] i32
    Tensor rows;         ///< [M,H]

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// y[n] = Σ over the token's slots of (weight ·) rows[row_of_slot], in fp32, in the order of slots, rounded
/// once.
struct RowsToTokens {
    Tensor rows;         ///< [M,H]
    Tensor row_of_slot;  ///< [M] i32
    Tensor weights;      ///< [N,W] f32, optional
    Tensor y;            ///< [N,H]

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// Takes the routing weights into account in backward. Given dy rows without them and dactivated = dy · W2
/// made from those: dweights[slot] = ⟨dactivated, activated⟩ of its row, then both rows are multiplied by the
/// slot's weight in place.
struct WeightRows {
    Tensor activated;    ///< [M,I]
    Tensor dactivated;   ///< [M,I], in place
    Tensor dy;           ///< [M,H], in place
    Tensor slot_of_row;  ///< [M] i32
    Tensor weights;      ///< [N,W] f32
    Tensor dweights;     ///< [N,W] f32

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// One product per expert over its rows; b or c hold the experts' matrices one below the other. A group
/// without rows gives nothing, or zeros where c is its weight gradient and it does not accumulate.
struct GroupedGemm {
    enum class Use : std::uint8_t { forward, data_gradient, weight_gradient };
    Use use = Use::forward;
    Tensor a;        ///< forward: x [M,K]; data gradient: dy [M,O]; weight gradient: dy [M,O]
    Tensor b;        ///< forward and data gradient: weights [E·O,K]; weight gradient: x [M,K]
    Tensor c;        ///< forward: y [M,O]; data gradient: dx [M,K]; weight gradient: dweights [E·O,K]
    Tensor offsets;  ///< [E + 1] i32
    bool accumulate = false;  ///< adds to c

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
