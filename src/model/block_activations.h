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
    Tensor qkv;               ///< [N,(heads + 2·kv_heads)·D], rotated
    Tensor attended;          ///< [N,heads·D]
    Tensor lse;               ///< [N·heads] f32
    Tensor mid_residual;      ///< [held,H], after attention was added
    Tensor mlp_rstd;          ///< [held] f32
    Tensor mlp_normed;        ///< [held,H]
    Tensor gate_up;           ///< [N,2I]
    Tensor activated;         ///< [N,I]

    /// The first tokens of every buffer, for a micro-batch that is smaller than planned.
    BlockActivations prefix(const BlockShape& shape) const;
};

/// Buffers that one block uses at a time.
struct BlockScratch {
    Tensor branch;       ///< [N,H]: what attention or feed-forward adds to the residual; in backward, a norm's dy
    Tensor held_branch;  ///< [held,H], when tokens are split
    Tensor gathered;     ///< [N,H], when tokens are split
    Tensor dresidual_compute;  ///< [held,H] in the compute dtype, when the residual has another one
    Tensor dactivated;   ///< [N,I]; shares memory with the next two
    Tensor dattended;    ///< [N,heads·D]
    Tensor dqkv;         ///< [N,(heads + 2·kv_heads)·D]

    BlockScratch prefix(const BlockShape& shape) const;
};

/// Plans the activations of all blocks: what the policy keeps is per block, what it drops is shared by all.
class ActivationBuffers {
  public:
    /// The buffers that must survive while the head runs.
    void plan_kept(Arena& arena, const BlockShape& largest, const Precision& precision, const RecomputePolicy& policy,
                   int blocks);
    /// The buffers that only a running block needs; the head may use the same memory.
    void plan_block_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                            const RecomputePolicy& policy, int blocks, const TensorParallel& parallel);

    const BlockActivations& block(int index) const { return blocks_[static_cast<std::size_t>(index)]; }
    const BlockScratch& scratch() const { return scratch_; }

  private:
    std::vector<BlockActivations> blocks_;
    BlockScratch scratch_;
};

}  // namespace drover
