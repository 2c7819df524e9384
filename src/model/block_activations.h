#pragma once

#include <vector>

#include "core/arena.h"
#include "core/precision.h"
#include "model/block_shape.h"
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

    // With experts (backend/ops/experts.h): E experts, W slots per token, M = N·W rows.
    Tensor router_probabilities;  ///< [N,E] f32
    Tensor expert_of_slot;        ///< [N,W] i32
    Tensor slot_weights;          ///< [N,W] f32
    Tensor expert_offsets;        ///< [E + 1] i32
    Tensor row_of_slot;           ///< [M] i32
    Tensor slot_of_row;           ///< [M] i32

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

    // With experts.
    Tensor expert_rows;                    ///< [M,H]: tokens, outputs or gradients, sorted by expert
    Tensor router_logits;                  ///< [N,E] f32
    Tensor drouter_logits;                 ///< [N,E]
    Tensor dslot_weights;                  ///< [N,W] f32
    Tensor stacked_gate_up, stacked_down;  ///< copies of the experts' weights, with MoeMode::stacked

    BlockScratch prefix(const BlockShape& shape) const;
};

/// Plans the activations of all blocks: kept tensors are per block, dropped ones are shared by all blocks.
class ActivationBuffers {
  public:
    /// The buffers that must survive while the head runs.
    void plan_kept(Arena& arena, const BlockShape& largest, const Precision& precision,
                   const RecomputePolicy& policy, int blocks);
    /// The buffers that only a running block needs; the head may use the same memory.
    void plan_block_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                            const RecomputePolicy& policy, int blocks, const TensorParallel& parallel,
                            MoeMode mode);

    const BlockActivations& block(int index) const { return blocks_[static_cast<std::size_t>(index)]; }
    const BlockScratch& scratch() const { return scratch_; }

  private:
    void plan_expert_scratch(Arena& arena, const BlockShape& largest, DType compute, MoeMode mode);

    std::vector<BlockActivations> blocks_;
    BlockScratch scratch_;
};

}  // namespace drover
