#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "core/arena.h"
#include "core/precision.h"
#include "model/block_shape.h"
#include "model/fp8.h"
#include "model/params.h"
#include "model/recompute.h"

namespace drover {

/// What a block's forward leaves for its backward. N tokens, of which `held` are this rank's between blocks.
struct BlockActivations {
    Tensor residual;          ///< [held,H], the block's input
    Tensor attention_rstd;    ///< [held] f32
    Tensor attention_normed;  ///< [held,H]
    Tensor qkv;               ///< [N,(heads + 2·kv_heads)·D]; q and k are rotated, without `query_key`
    Tensor query_key;         ///< [N,(heads + kv_heads)·D], normed and rotated; absent without head norms
    Tensor attended;          ///< [N,heads·D]
    Tensor lse;               ///< [N·heads] f32
    Tensor mid_residual;      ///< [held,H], after attention was added
    Tensor mlp_rstd;          ///< [held] f32
    Tensor mlp_normed;        ///< [held,H]
    Tensor gate_up;           ///< [N,2I], or [M,2I] sorted by expert
    Tensor activated;         ///< [N,I], or [M,I] sorted by expert

    /// With adapters, the t = scale · x · Aᵀ of each matrix: [N,R], or [M,R] sorted by expert.
    std::array<Tensor, static_cast<std::size_t>(AdaptedMatrix::count)> adapter_inputs;

    /// With DoRA, what the columns of each dense matrix' output are multiplied by: [out] f32.
    std::array<Tensor, static_cast<std::size_t>(AdaptedMatrix::count)> magnitude_factors;
    Tensor attention_output, mlp_output;  ///< with DoRA: [N,H], what these products gave on this rank

    const Tensor& adapted(AdaptedMatrix matrix) const {
        return adapter_inputs[static_cast<std::size_t>(matrix)];
    }

    // With experts (backend/ops/experts.h): E experts, W slots per token, M = N·W rows.
    Tensor router_probabilities;  ///< [N,E] f32
    Tensor expert_of_slot;        ///< [N,W] i32
    Tensor slot_weights;          ///< [N,W] f32
    Tensor expert_offsets;        ///< [E + 1] i32
    Tensor row_of_slot;           ///< [M] i32
    Tensor slot_of_row;           ///< [M] i32

    Fp8Recipe fp8_recipe = Fp8Recipe::none;
    Fp8Table fp8;  ///< present where tensors have one scale
    /// The transposes of matrices' inputs in FP8, for the weight gradients: instead of the inputs
    /// themselves, which only forward needs then. Absent: made from the inputs in backward.
    std::array<Fp8Room, static_cast<std::size_t>(AdaptedMatrix::count)> fp8_inputs;

    const Fp8Room& fp8_input(AdaptedMatrix matrix) const {
        return fp8_inputs[static_cast<std::size_t>(matrix)];
    }

    const Fp8Copies* fp8_weights = nullptr;  ///< of the block's frozen weights; null: none are kept

    /// The copies of a matrix' weights, if they are kept.
    const Fp8Copies* fp8_copies(AdaptedMatrix matrix) const {
        return fp8_weights != nullptr && fp8_weights->has(matrix) ? fp8_weights : nullptr;
    }

    // Where weight gradients wait (BackwardPart): what they will be computed from, beside the above.
    Tensor dmlp_branch;        ///< [N,H]: gradient of what the feed-forward added; absent with experts
    Tensor dattention_branch;  ///< [N,H]: gradient of what attention added
    Tensor dqkv;               ///< [N,(heads + 2·kv_heads)·D]

    const Tensor& adapted_lengths(AdaptedMatrix matrix) const {
        return magnitude_factors[static_cast<std::size_t>(matrix)];
    }
    /// The first tokens of every buffer, for a micro-batch that is smaller than planned.
    BlockActivations prefix(const BlockShape& shape) const;
};

/// Buffers that one block uses at a time.
struct BlockScratch {
    Tensor branch;  ///< [N,H]: what attention or feed-forward adds to the residual; in backward, a norm's dy
    Tensor held_branch;        ///< [held,H], when tokens are split
    Tensor gathered;           ///< [N,H], when tokens are split
    Tensor dresidual_compute;  ///< [held,H] in the compute dtype, when the residual has another one
    Tensor dactivated;         ///< [M,I] (M = N when dense); shares memory with the next two
    Tensor dattended;          ///< [N,heads·D]
    Tensor dqkv;               ///< [N,(heads + 2·kv_heads)·D]

    // With adapters.
    Tensor dadapter_inputs;  ///< flat: the gradient of a matrix' t; the router's t and its gradient
    Tensor dropped;          ///< flat: what dropout leaves of a matrix' input, if there is dropout
    Tensor row_lengths;      ///< flat, f32, with DoRA: room to compute the lengths of rows
    Tensor dgate_up;         ///< [N,2I], with DoRA: otherwise the gradient takes gate_up's place
    Tensor scaled;           ///< [N,H], with DoRA: the gradient of an output, its columns scaled

    /// Room for the gradient of a t of this shape.
    Tensor adapted_gradient(const Shape& shape) const {
        return dadapter_inputs.rows(0, shape.numel()).view(shape);
    }

    // With experts.
    Tensor expert_rows;                    ///< [M,H]: tokens, outputs or gradients, sorted by expert
    Tensor router_logits;                  ///< [N,E] f32
    Tensor drouter_logits;                 ///< [N,E]
    Tensor dslot_weights;                  ///< [N,W] f32
    Tensor stacked_gate_up, stacked_down;  ///< copies of the experts' weights, with MoeMode::stacked

    Fp8Scratch fp8;  ///< absent without FP8

    BlockScratch prefix(const BlockShape& shape) const;
};

/// A block whose activations are kept, for `slots` micro-batches at a time.
struct KeptBlock {
    Recompute recompute = Recompute::none;
    int slots = 1;
    /// R of each matrix' adapters; 0: none.
    std::array<std::int64_t, static_cast<std::size_t>(AdaptedMatrix::count)> ranks{};
    std::int64_t rank_of(AdaptedMatrix matrix) const { return ranks[static_cast<std::size_t>(matrix)]; }
    std::int64_t router_rank = 0;  ///< likewise of the router's adapter
    bool adapters_drop = false;    ///< with dropout before A
    bool magnitudes = false;       ///< with DoRA
    Fp8Recipe fp8 = Fp8Recipe::none;
    /// The matrices without a trained weight.
    std::array<bool, static_cast<std::size_t>(AdaptedMatrix::count)> frozen{};
    bool keeps_frozen_fp8 = false;  ///< copies of those in FP8

    /// Whether a matrix' weights are quantised once and for all.
    bool keeps_fp8_weights(std::size_t matrix) const {
        return fp8 != Fp8Recipe::none && keeps_frozen_fp8 && frozen[matrix];
    }

    /// Whether the inputs of products are kept in FP8 instead of their own format. Adapters need them as they
    /// are; and what a rank holds of the tokens is less than what it multiplies.
    bool keeps_fp8_inputs(const BlockShape& shape) const {
        return fp8 != Fp8Recipe::none && recompute == Recompute::none && shape.experts == 0 &&
               shape.held == shape.tokens &&
               std::ranges::all_of(ranks, [](std::int64_t rank) { return rank == 0; });
    }
};

/// Plans the activations of a rank's blocks: kept tensors are per block and slot, dropped ones are shared by
/// all.
class ActivationBuffers {
  public:
    /// The buffers that must survive while the head runs. `later` [block], if not empty, is memory that is
    /// in use only after the block's backward: it is lent to this block and those after it.
    void plan_kept(Arena& arena, const BlockShape& largest, const Precision& precision,
                   const std::vector<KeptBlock>& blocks, bool weight_gradients_wait,
                   const std::vector<std::vector<Tensor>>& later = {});
    /// The buffers that only a running block needs; the head may use the same memory.
    void plan_block_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                            const std::vector<KeptBlock>& blocks, const TensorParallel& parallel,
                            MoeMode mode);

    const BlockActivations& block(int index, int slot) const {
        return blocks_[static_cast<std::size_t>(index)][static_cast<std::size_t>(slot)];
    }
    const BlockScratch& scratch() const { return scratch_; }

    /// The copies of frozen weights that a block keeps; null: none.
    const Fp8Copies* fp8_weights(int index) const {
        const Fp8Copies& copies = fp8_weights_[static_cast<std::size_t>(index)];
        return copies.any() ? &copies : nullptr;
    }

  private:
    void plan_fp8_weights(Arena& arena, const BlockShape& shape, const std::vector<KeptBlock>& blocks);
    void plan_adapter_scratch(Arena& arena, const BlockShape& largest, DType compute,
                              const std::vector<KeptBlock>& blocks);
    void plan_fp8_scratch(Arena& arena, const BlockShape& largest, const std::vector<KeptBlock>& blocks);
    void plan_expert_scratch(Arena& arena, const BlockShape& largest, DType compute, MoeMode mode);

    std::vector<std::vector<BlockActivations>> blocks_;  // [block][slot]
    std::vector<Fp8Copies> fp8_weights_;                 // [block]
    BlockScratch scratch_;
};

}  // namespace drover
