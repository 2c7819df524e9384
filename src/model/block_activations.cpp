#include "model/block_activations.h"

namespace drover {
namespace {

Tensor first_rows(const Tensor& tensor, std::int64_t rows) {
    return tensor ? tensor.rows(0, rows) : tensor;
}

/// Whether a block with this policy makes the tensor again in backward instead of keeping it.
struct Dropped {
    bool normed, activated, gate_up, attention;

    explicit Dropped(Recompute recompute)
        : normed(recompute != Recompute::none),
          activated(recompute != Recompute::none),
          gate_up(recompute == Recompute::selective_mlp || recompute == Recompute::full),
          attention(recompute == Recompute::full) {}
};

}  // namespace

BlockActivations BlockActivations::prefix(const BlockShape& shape) const {
    return {.residual = first_rows(residual, shape.held),
            .attention_rstd = first_rows(attention_rstd, shape.held),
            .attention_normed = first_rows(attention_normed, shape.held),
            .qkv = first_rows(qkv, shape.tokens),
            .attended = first_rows(attended, shape.tokens),
            .lse = first_rows(lse, shape.tokens * shape.heads),
            .mid_residual = first_rows(mid_residual, shape.held),
            .mlp_rstd = first_rows(mlp_rstd, shape.held),
            .mlp_normed = first_rows(mlp_normed, shape.held),
            .gate_up = first_rows(gate_up, shape.tokens),
            .activated = first_rows(activated, shape.tokens)};
}

BlockScratch BlockScratch::prefix(const BlockShape& shape) const {
    return {.branch = first_rows(branch, shape.tokens),
            .held_branch = first_rows(held_branch, shape.held),
            .gathered = first_rows(gathered, shape.tokens),
            .dresidual_compute = first_rows(dresidual_compute, shape.held),
            .dactivated = first_rows(dactivated, shape.tokens),
            .dattended = first_rows(dattended, shape.tokens),
            .dqkv = first_rows(dqkv, shape.tokens)};
}

void ActivationBuffers::plan_kept(Arena& arena, const BlockShape& largest, const Precision& precision,
                                  const RecomputePolicy& policy, int blocks) {
    const DType compute = precision.parameters;
    const auto residual = [&] {
        return arena.make(MemoryUse::residual_stream, precision.residual, {largest.held, largest.hidden});
    };
    const auto rstd = [&] { return arena.make(MemoryUse::residual_stream, DType::f32, {largest.held}); };
    const auto attention = [&](std::int64_t rows, std::int64_t columns) {
        return arena.make(MemoryUse::attention_activations, compute, {rows, columns});
    };
    const auto mlp = [&](std::int64_t rows, std::int64_t columns) {
        return arena.make(MemoryUse::mlp_activations, compute, {rows, columns});
    };

    scratch_.branch = arena.make(MemoryUse::scratch, compute, {largest.tokens, largest.hidden});
    blocks_.assign(static_cast<std::size_t>(blocks), {});
    // The next block, or the head, still reads the last mid_residual: it cannot share the head's memory.
    Tensor shared_mid_residual;
    for (int i = 0; i < blocks; ++i) {
        const Dropped dropped(policy.of_block(i));
        BlockActivations& kept = blocks_[static_cast<std::size_t>(i)];
        kept.residual = residual();
        kept.attention_rstd = rstd();
        kept.mlp_rstd = rstd();
        if (dropped.attention) {
            if (!shared_mid_residual) shared_mid_residual = residual();
            kept.mid_residual = shared_mid_residual;
        } else {
            kept.qkv = attention(largest.tokens, largest.qkv_columns());
            kept.attended = attention(largest.tokens, largest.query_columns());
            kept.lse = arena.make(MemoryUse::attention_activations, DType::f32, {largest.tokens * largest.heads});
            kept.mid_residual = residual();
        }
        if (!dropped.normed) {
            kept.attention_normed = attention(largest.held, largest.hidden);
            kept.mlp_normed = mlp(largest.held, largest.hidden);
        }
        if (!dropped.gate_up) kept.gate_up = mlp(largest.tokens, 2 * largest.ffn);
        if (!dropped.activated) kept.activated = mlp(largest.tokens, largest.ffn);
    }
}

void ActivationBuffers::plan_block_scratch(Arena& arena, const BlockShape& largest, const Precision& precision,
                                           const RecomputePolicy& policy, int blocks,
                                           const TensorParallel& parallel) {
    const DType compute = precision.parameters;
    const auto make = [&](std::int64_t rows, std::int64_t columns) {
        return arena.make(MemoryUse::scratch, compute, {rows, columns});
    };

    // One buffer of each kind serves all blocks that drop it.
    BlockActivations shared;
    for (int i = 0; i < blocks; ++i) {
        const Dropped dropped(policy.of_block(i));
        BlockActivations& block = blocks_[static_cast<std::size_t>(i)];
        const auto share = [&](Tensor BlockActivations::*field, std::int64_t rows, std::int64_t columns) {
            if (!(shared.*field)) shared.*field = make(rows, columns);
            block.*field = shared.*field;
        };
        if (dropped.normed) {
            share(&BlockActivations::attention_normed, largest.held, largest.hidden);
            share(&BlockActivations::mlp_normed, largest.held, largest.hidden);
        }
        if (dropped.attention) {
            share(&BlockActivations::qkv, largest.tokens, largest.qkv_columns());
            share(&BlockActivations::attended, largest.tokens, largest.query_columns());
            if (!shared.lse)
                shared.lse = arena.make(MemoryUse::scratch, DType::f32, {largest.tokens * largest.heads});
            block.lse = shared.lse;
        }
        if (dropped.gate_up) share(&BlockActivations::gate_up, largest.tokens, 2 * largest.ffn);
        if (dropped.activated) share(&BlockActivations::activated, largest.tokens, largest.ffn);
    }

    if (parallel.splits_tokens()) {
        scratch_.held_branch = make(largest.held, largest.hidden);
        scratch_.gathered = make(largest.tokens, largest.hidden);
    }
    if (precision.residual != compute) scratch_.dresidual_compute = make(largest.held, largest.hidden);
    {
        const Arena::Scope feed_forward(arena);
        scratch_.dactivated = make(largest.tokens, largest.ffn);
    }
    {
        const Arena::Scope attention(arena);
        scratch_.dattended = make(largest.tokens, largest.query_columns());
        scratch_.dqkv = make(largest.tokens, largest.qkv_columns());
    }
}

}  // namespace drover
