#pragma once

#include <span>

#include "backend/ops/operation.h"
#include "core/tensor.h"

/// Operations of the optimizers. An update works on many leaves at once, in fp32 whatever its tensors' types;
/// the gradient is multiplied by the clip factor first; with a master copy the update is made on it and
/// rounded into the parameter.
namespace drover {

/// Numbers of the current update that kernels read from device memory, so that a whole step can be enqueued
/// (and captured) without the host waiting for any of them. Index into the [count] f32 tensor.
struct StepScalar {
    enum Index : std::int64_t {
        learning_rate,
        loss_scale,  ///< 1 / target tokens of the whole optimizer step, times the scale of the gradients
        bias_correction1,  ///< 1 − beta1^t
        bias_correction2,  ///< 1 − beta2^t
        gradient_norm,     ///< written by ClipFactor
        clip_factor,       ///< written by ClipFactor
        step,              ///< t: number of the update, from 1
        newest_share,      ///< Adafactor: how much the newest squares count in the mean squares
        skips,             ///< written by ClipFactor: unless 0, updates leave weights and state as they are
        count
    };
};

/// sums[i] = sum of squares of tensors[i], in a fixed order.
struct SumOfSquares {
    std::span<const Tensor> tensors;
    Tensor sums;  ///< [tensors.size()] f64

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// gradient_norm = √(Σ sums) / gradient_scale; clip_factor = min(1, max_norm / (norm + 1e-6)), or 1 when
/// max_norm ≤ 0, divided by gradient_scale: this removes the gradients' scale where they are used. When
/// guarded, a norm or loss that is not finite makes the updates that follow leave everything as it is, so the
/// host need not wait for the norm to decide it.
struct ClipFactor {
    Tensor sums;     ///< [n] f64
    Tensor scalars;  ///< [StepScalar::count] f32
    float max_norm = 0;
    float gradient_scale = 1;
    bool guarded = false;
    Tensor loss{};  ///< [1] f64, optional

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// Position of a part of a leaf in the whole leaf. Noise is indexed by it, so that it does not depend on how
/// leaves are spread over ranks.
struct LeafPlace {
    std::uint64_t leaf = 0;  ///< leaf_hash() of the leaf's name
    std::int64_t row_begin = 0;
    std::int64_t column_begin = 0;
    std::int64_t columns = 0;  ///< of the whole leaf; 1 for a vector
};

/// How an update is rounded into bf16 parameters without a master copy: to nearest, or to one of the two
/// neighbours with probabilities that make the mean exact. The random bits are those of CounterRng(seed, t)
/// for the element.
struct UpdateRounding {
    bool stochastic = false;
    std::uint64_t seed = 0;
};

/// One leaf's state in an AdamW update.
struct AdamWLeaf {
    Tensor param;       ///< any shape, packed
    Tensor gradient;    ///< same number of elements
    Tensor exp_avg;     ///< f32 or bf16
    Tensor exp_avg_sq;  ///< f32 or bf16
    Tensor master{};    ///< f32, optional
    float weight_decay = 0;
    LeafPlace place{};  ///< for stochastic rounding only
};

/// Two ways to write decoupled AdamW.
enum class AdamWForm : std::uint8_t {
    torch,         ///< decay, then the update; epsilon is added to the corrected root
    transformers,  ///< the update, then decay; epsilon is added to the root before it is corrected
};

/// Decoupled AdamW.
struct AdamW {
    std::span<const AdamWLeaf> leaves;
    Tensor scalars;      ///< [StepScalar::count] f32
    double beta1 = 0.9;  ///< f64, because 1 − beta is formed from it
    double beta2 = 0.999;
    float eps = 1e-8f;
    UpdateRounding rounding{};
    AdamWForm form = AdamWForm::torch;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// One leaf of an update that keeps at most one number per element. Weight decay is added to the gradient.
struct MomentLeaf {
    Tensor param;     ///< any shape, packed
    Tensor gradient;  ///< same number of elements
    Tensor moment{};  ///< f32 or bf16
    Tensor master{};  ///< f32, optional
    float weight_decay = 0;
    LeafPlace place{};  ///< for stochastic rounding only
};

/// moment ← momentum · moment + g; param −= learning rate · moment. Leaves without a moment take g itself.
struct Sgd {
    std::span<const MomentLeaf> leaves;
    Tensor scalars;  ///< [StepScalar::count] f32
    float momentum = 0;
    UpdateRounding rounding{};

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// moment += g²; param −= learning rate · g / (√moment + eps).
struct Adagrad {
    std::span<const MomentLeaf> leaves;
    Tensor scalars;  ///< [StepScalar::count] f32
    float eps = 1e-10f;
    UpdateRounding rounding{};

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// moment ← alpha · moment + (1 − alpha) · g²; param −= learning rate · g / (√moment + eps).
struct Rmsprop {
    std::span<const MomentLeaf> leaves;
    Tensor scalars;       ///< [StepScalar::count] f32
    double alpha = 0.99;  ///< f64, because 1 − alpha is formed from it
    float eps = 1e-8f;
    UpdateRounding rounding{};

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

// Adafactor takes four operations, because its statistics are sums over whole matrices, of which a rank holds
// a part:
//
//     AdafactorSums → sum over ranks → AdafactorFactors → AdafactorSquares → sum over ranks → AdafactorUpdate

/// A matrix [R,C] whose mean squared gradients are kept by row and by column: a leaf, or leaves stacked by
/// rows.
struct AdafactorMatrix {
    Tensor row_sums;  ///< [R] f32: squares of the rows; AdafactorFactors replaces them by the rows' factors
    Tensor column_sums;   ///< [C] f32: likewise
    Tensor row_means;     ///< [R] f32, state
    Tensor column_means;  ///< [C] f32, state
};

/// A part of one leaf in an Adafactor update: r × c elements of a matrix, or n of a vector.
struct AdafactorLeaf {
    Tensor param;      ///< [r,c] or [n], packed
    Tensor gradient;   ///< same shape
    Tensor rows{};     ///< [r] f32, matrices only: their range of row_sums, later of the rows' factors
    Tensor columns{};  ///< [c] f32, matrices only: likewise
    Tensor means{};    ///< [n] f32, vectors only: mean squares, state
    Tensor squares;    ///< [1] f64: sum of the squared update over all that is clipped together
    double clipped_elements = 1;  ///< their number
    bool counted = true;          ///< adds to the sums; a copy of what another rank counts does not
    Tensor master{};              ///< f32, optional
    float weight_decay = 0;
    LeafPlace place{};  ///< for stochastic rounding only
};

/// rows += squares of the gradient summed over its columns, columns += the same over its rows, in a fixed
/// order.
struct AdafactorSums {
    std::span<const AdafactorLeaf> leaves;
    Tensor scalars;  ///< [StepScalar::count] f32

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// With s = newest_share: row_means ← (1 − s) · row_means + s · (row_sums / C + eps), column_means likewise;
/// and their factors: (row_means / mean of row_means)^−½ and column_means^−½.
struct AdafactorFactors {
    std::span<const AdafactorMatrix> matrices;
    Tensor scalars;  ///< [StepScalar::count] f32
    float eps = 1e-30f;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// squares += Σ U² with U = g · row's factor · column's factor; or, for vectors, U = g / √means after
/// means ← (1 − s) · means + s · (g² + eps).
struct AdafactorSquares {
    std::span<const AdafactorLeaf> leaves;
    Tensor scalars;  ///< [StepScalar::count] f32
    float eps = 1e-30f;

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

/// param ← (1 − learning rate · weight decay) · param − learning rate · U / max(1, rms(U) / clip_threshold),
/// with the root mean square from `squares`.
struct AdafactorUpdate {
    std::span<const AdafactorLeaf> leaves;
    Tensor scalars;  ///< [StepScalar::count] f32
    float clip_threshold = 1;
    UpdateRounding rounding{};

    void check(const Operands& operands) const;
    OperationCost cost() const;
};

}  // namespace drover
