#include "model/block_activations.h"

#include <algorithm>

#include "backend/ops/fp8.h"
#include "model/config.h"

namespace drover {
namespace {

/// Whether a block does not keep the tensor for backward, which recomputes it or does not need it.
struct Dropped {
    bool normed, activated, gate_up, projected, attended;

    Dropped(const KeptBlock& block, const BlockShape& shape)
        : normed(block.recompute != Recompute::none || block.keeps_fp8_inputs(shape)),
          activated(normed),
          gate_up(block.recompute == Recompute::selective_mlp || starts_at_input(block.recompute)),
          projected(starts_at_input(block.recompute)),
          attended(block.recompute == Recompute::full) {}
};

std::int64_t output_columns(const BlockShape& shape, std::size_t matrix) {
    switch (static_cast<AdaptedMatrix>(matrix)) {
        case AdaptedMatrix::qkv:
            return shape.qkv_columns();
        case AdaptedMatrix::gate_up:
            return 2 * shape.ffn;
        default:
            return shape.hidden;
    }
}

std::int64_t input_columns(const BlockShape& shape, std::size_t matrix) {
    switch (static_cast<AdaptedMatrix>(matrix)) {
        case AdaptedMatrix::attention_output:
            return shape.query_columns();
        case AdaptedMatrix::down:
            return shape.ffn;
        default:
            return shape.hidden;
    }
}

bool is_of_experts(const BlockShape& shape, std::size_t matrix) {
    return shape.experts > 0 && matrix >= static_cast<std::size_t>(AdaptedMatrix::gate_up);
}

/// The rows of a matrix' input.
std::int64_t rows_of(const BlockShape& shape, std::size_t matrix) {
    const auto which = static_cast<AdaptedMatrix>(matrix);
    return which == AdaptedMatrix::gate_up || which == AdaptedMatrix::down ? shape.expert_rows()
                                                                           : shape.tokens;
}

/// The largest of the matrices that share an Fp8Room.
struct RoomSize {
    std::int64_t numbers = 0, scales = 0;

    /// `groups` matrices, one below the other.
    void hold(Fp8Scales kind, std::int64_t rows, std::int64_t columns, std::int64_t groups = 1) {
        numbers = std::max(numbers, rows * columns);
        if (kind != Fp8Scales::one)
            scales = std::max(scales, shape_of_scales(kind, rows, columns, groups).numel());
    }
    /// From make(dtype, shape).
    Fp8Room made_by(const auto& make) const {
        const auto flat = [&](DType dtype, std::int64_t elements) {
            return elements > 0 ? make(dtype, Shape{elements}) : Tensor();
        };
        return {.numbers = flat(DType::f8, numbers), .scales = flat(DType::f32, scales)};
    }
    Fp8Room make(Arena& arena, MemoryUse use) const {
        return made_by([&](DType dtype, const Shape& shape) { return arena.make(use, dtype, shape); });
    }
};

}  // namespace

BlockActivations BlockActivations::prefix(const BlockShape& shape) const {
    BlockActivations part = {.residual = residual.first_rows(shape.held),
                             .attention_rstd = attention_rstd.first_rows(shape.held),
                             .attention_normed = attention_normed.first_rows(shape.held),
                             .qkv = qkv.first_rows(shape.tokens),
                             .query_key = query_key.first_rows(shape.tokens),
                             .attended = attended.first_rows(shape.tokens),
                             .lse = lse.first_rows(shape.tokens * shape.heads),
                             .mid_residual = mid_residual.first_rows(shape.held),
                             .mlp_rstd = mlp_rstd.first_rows(shape.held),
                             .mlp_normed = mlp_normed.first_rows(shape.held),
                             .gate_up = gate_up.first_rows(shape.expert_rows()),
                             .activated = activated.first_rows(shape.expert_rows()),
                             .router_probabilities = router_probabilities.first_rows(shape.tokens),
                             .expert_of_slot = expert_of_slot.first_rows(shape.tokens),
                             .slot_weights = slot_weights.first_rows(shape.tokens),
                             .expert_offsets = expert_offsets,
                             .row_of_slot = row_of_slot.first_rows(shape.expert_rows()),
                             .slot_of_row = slot_of_row.first_rows(shape.expert_rows()),
                             .dmlp_branch = dmlp_branch.first_rows(shape.tokens),
                             .dattention_branch = dattention_branch.first_rows(shape.tokens),
                             .dqkv = dqkv.first_rows(shape.tokens)};
    for (std::size_t i = 0; i < adapter_inputs.size(); ++i)
        part.adapter_inputs[i] = adapter_inputs[i].first_rows(rows_of(shape, i));
    part.magnitude_factors = magnitude_factors;
    part.attention_output = attention_output.first_rows(shape.tokens);
    part.mlp_output = mlp_output.first_rows(shape.tokens);
    part.fp8_recipe = fp8_recipe;
    part.fp8 = fp8;
    part.fp8_inputs = fp8_inputs;
    part.fp8_weights = fp8_weights;
    return part;
}

BlockScratch BlockScratch::prefix(const BlockShape& shape) const {
    return {.branch = branch.first_rows(shape.tokens),
            .held_branch = held_branch.first_rows(shape.held),
            .gathered = gathered.first_rows(shape.tokens),
            .dresidual_compute = dresidual_compute.first_rows(shape.held),
            .dactivated = dactivated.first_rows(shape.expert_rows()),
            .dattended = dattended.first_rows(shape.tokens),
            .dqkv = dqkv.first_rows(shape.tokens),
            .dadapter_inputs = dadapter_inputs,
            .dropped = dropped,
            .row_lengths = row_lengths,
            .dgate_up = dgate_up.first_rows(shape.tokens),
            .scaled = scaled.first_rows(shape.tokens),
            .expert_rows = expert_rows.first_rows(shape.expert_rows()),
            .router_logits = router_logits.first_rows(shape.tokens),
            .drouter_logits = drouter_logits.first_rows(shape.tokens),
            .dslot_weights = dslot_weights.first_rows(shape.tokens),
            .stacked_gate_up = stacked_gate_up,
            .stacked_down = stacked_down,
            .fp8 = fp8};
}

void ActivationBuffers::plan_kept(Arena& arena, const BlockShape& largest, const Precision& precision,
                                  const std::vector<KeptBlock>& blocks, bool weight_gradients_wait,
                                  const std::vector<std::vector<Tensor>>& later) {
    const DType compute = precision.parameters;
    const auto make = [&](MemoryUse use, DType dtype, const Shape& shape) {
        return arena.make_in_lent(use, dtype, shape);
    };
    const Shape residual_shape{largest.held, largest.hidden};
    const auto residual = [&] {
        return make(MemoryUse::residual_stream, precision.residual, residual_shape);
    };
    const auto rstd = [&] { return make(MemoryUse::residual_stream, DType::f32, {largest.held}); };
    const auto attention = [&](std::int64_t rows, std::int64_t columns) {
        return make(MemoryUse::attention_activations, compute, {rows, columns});
    };
    const auto mlp = [&](std::int64_t rows, std::int64_t columns) {
        return make(MemoryUse::mlp_activations, compute, {rows, columns});
    };

    // The head's norm reads what the last block adds.
    scratch_.branch = arena.make(MemoryUse::scratch, compute, {largest.tokens, largest.hidden});
    if (largest.held != largest.tokens)
        scratch_.held_branch = arena.make(MemoryUse::scratch, compute, {largest.held, largest.hidden});
    blocks_.clear();
    for (const KeptBlock& block : blocks) blocks_.emplace_back(static_cast<std::size_t>(block.slots));
    plan_fp8_weights(arena, largest, blocks);
    // The next block, or the head, still reads the last mid_residual: it cannot share the head's memory.
    Tensor shared_mid_residual;
    const auto plan_slot = [&](const Dropped& dropped, const KeptBlock& block, BlockActivations& kept) {
        // The largest come first: lent memory has more room for the small ones.
        if (!dropped.gate_up) kept.gate_up = mlp(largest.expert_rows(), 2 * largest.ffn);
        if (!dropped.activated) kept.activated = mlp(largest.expert_rows(), largest.ffn);
        kept.residual = residual();
        kept.attention_rstd = rstd();
        kept.mlp_rstd = rstd();
        if (dropped.projected) {
            if (!shared_mid_residual)
                shared_mid_residual =
                    arena.make(MemoryUse::residual_stream, precision.residual, residual_shape);
            kept.mid_residual = shared_mid_residual;
        } else {
            kept.qkv = attention(largest.tokens, largest.qkv_columns());
            if (largest.head_norms) kept.query_key = attention(largest.tokens, largest.query_key_columns());
            kept.mid_residual = residual();
        }
        if (!dropped.attended) {
            kept.attended = attention(largest.tokens, largest.query_columns());
            kept.lse = make(MemoryUse::attention_activations, DType::f32, {largest.tokens * largest.heads});
        }
        if (!dropped.normed) {
            kept.attention_normed = attention(largest.held, largest.hidden);
            kept.mlp_normed = mlp(largest.held, largest.hidden);
        }
        if (largest.experts > 0) {
            const auto routing = [&](DType dtype, const Shape& shape) {
                return make(MemoryUse::mlp_activations, dtype, shape);
            };
            kept.router_probabilities = routing(DType::f32, {largest.tokens, largest.experts});
            kept.expert_of_slot = routing(DType::i32, {largest.tokens, largest.slots});
            kept.slot_weights = routing(DType::f32, {largest.tokens, largest.slots});
            kept.expert_offsets = routing(DType::i32, {largest.experts + 1});
            kept.row_of_slot = routing(DType::i32, {largest.expert_rows()});
            kept.slot_of_row = routing(DType::i32, {largest.expert_rows()});
        }
        // Small, and some policies would not make them again.
        for (std::size_t i = 0; i < block.ranks.size(); ++i)
            if (block.ranks[i] > 0) {
                const bool in_attention = i <= static_cast<std::size_t>(AdaptedMatrix::attention_output);
                const std::int64_t rows = rows_of(largest, i);
                kept.adapter_inputs[i] =
                    in_attention ? attention(rows, block.ranks[i]) : mlp(rows, block.ranks[i]);
            }
        if (block.magnitudes) {
            for (std::size_t i = 0; i < block.ranks.size(); ++i)
                if (block.ranks[i] > 0)
                    kept.magnitude_factors[i] =
                        arena.make(MemoryUse::scratch, DType::f32, {output_columns(largest, i)});
            if (block.rank_of(AdaptedMatrix::attention_output) > 0)
                kept.attention_output = attention(largest.tokens, largest.hidden);
            if (block.rank_of(AdaptedMatrix::down) > 0) kept.mlp_output = mlp(largest.tokens, largest.hidden);
        }
        kept.fp8_recipe = block.fp8;
        if (block.fp8 == Fp8Recipe::tensorwise)
            kept.fp8.numbers = arena.make(MemoryUse::scratch, DType::f32, {Fp8Table::size});
        if (block.keeps_fp8_inputs(largest))
            for (const AdaptedMatrix matrix :
                 {AdaptedMatrix::qkv, AdaptedMatrix::gate_up, AdaptedMatrix::down}) {
                const auto i = static_cast<std::size_t>(matrix);
                RoomSize size;
                size.hold(fp8_scales(block.fp8, Fp8Operand::input), input_columns(largest, i),
                          fp8_rows(largest.tokens, block.fp8));
                const MemoryUse use = matrix == AdaptedMatrix::qkv ? MemoryUse::attention_activations
                                                                   : MemoryUse::mlp_activations;
                kept.fp8_inputs[i] =
                    size.made_by([&](DType dtype, const Shape& shape) { return make(use, dtype, shape); });
            }
        if (weight_gradients_wait) {
            const auto waiting = [&](std::int64_t columns) {
                return arena.make(MemoryUse::waiting_gradients, compute, {largest.tokens, columns});
            };
            if (largest.experts == 0) kept.dmlp_branch = waiting(largest.hidden);
            kept.dattention_branch = waiting(largest.hidden);
            kept.dqkv = waiting(largest.qkv_columns());
        }
    };
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (!later.empty())
            for (const Tensor& gradient : later[i]) arena.lend(gradient);
        for (BlockActivations& slot : blocks_[i]) {
            plan_slot(Dropped(blocks[i], largest), blocks[i], slot);
            slot.fp8_weights = fp8_weights(static_cast<int>(i));
        }
    }
}

void ActivationBuffers::plan_fp8_weights(Arena& arena, const BlockShape& shape,
                                         const std::vector<KeptBlock>& blocks) {
    fp8_weights_.assign(blocks.size(), {});
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        Fp8Copies& copies = fp8_weights_[i];
        for (std::size_t matrix = 0; matrix < copies.weights.size(); ++matrix) {
            if (!blocks[i].keeps_fp8_weights(matrix)) continue;
            const std::int64_t in = input_columns(shape, matrix), out = output_columns(shape, matrix),
                               matrices = is_of_experts(shape, matrix) ? shape.experts : 1;
            const bool has_one_scale = blocks[i].fp8 == Fp8Recipe::tensorwise;
            if (has_one_scale && !copies.table)
                copies.table.numbers = arena.make(MemoryUse::parameters, DType::f32, {Fp8Table::size});
            Fp8Matrix& weight = copies.weights[matrix];
            weight.numbers = arena.make(MemoryUse::parameters, DType::f8, {matrices * out, in});
            const auto scales = [&](std::int64_t rows, std::int64_t columns) {
                return has_one_scale
                           ? copies.table.scale(static_cast<AdaptedMatrix>(matrix), Fp8Operand::weight)
                           : arena.make(MemoryUse::parameters, DType::f32,
                                        shape_of_scales(fp8_scales(blocks[i].fp8, Fp8Operand::weight),
                                                        matrices * rows, columns, matrices));
            };
            weight.scales = scales(out, in);
            copies.transposed_scales[matrix] = scales(in, out);
        }
    }
}

void ActivationBuffers::plan_block_scratch(Arena& arena, const BlockShape& largest,
                                           const Precision& precision, const std::vector<KeptBlock>& blocks,
                                           const TensorParallel& parallel, MoeMode mode) {
    const DType compute = precision.parameters;
    const auto make = [&](std::int64_t rows, std::int64_t columns) {
        return arena.make(MemoryUse::scratch, compute, {rows, columns});
    };

    // One buffer of each kind serves all blocks that drop it.
    BlockActivations shared;
    const auto share_dropped = [&](const Dropped& dropped, BlockActivations& block) {
        const auto share = [&](Tensor BlockActivations::*field, std::int64_t rows, std::int64_t columns) {
            if (!(shared.*field)) shared.*field = make(rows, columns);
            block.*field = shared.*field;
        };
        if (dropped.normed) {
            share(&BlockActivations::attention_normed, largest.held, largest.hidden);
            share(&BlockActivations::mlp_normed, largest.held, largest.hidden);
        }
        if (dropped.projected) {
            share(&BlockActivations::qkv, largest.tokens, largest.qkv_columns());
            if (largest.head_norms)
                share(&BlockActivations::query_key, largest.tokens, largest.query_key_columns());
        }
        if (dropped.attended) {
            share(&BlockActivations::attended, largest.tokens, largest.query_columns());
            if (!shared.lse)
                shared.lse = arena.make(MemoryUse::scratch, DType::f32, {largest.tokens * largest.heads});
            block.lse = shared.lse;
        }
        if (dropped.gate_up) share(&BlockActivations::gate_up, largest.expert_rows(), 2 * largest.ffn);
        if (dropped.activated) share(&BlockActivations::activated, largest.expert_rows(), largest.ffn);
    };
    for (std::size_t i = 0; i < blocks.size(); ++i)
        for (BlockActivations& slot : blocks_[i]) share_dropped(Dropped(blocks[i], largest), slot);

    if (parallel.splits_tokens()) scratch_.gathered = make(largest.tokens, largest.hidden);
    plan_adapter_scratch(arena, largest, compute, blocks);
    if (std::ranges::any_of(blocks, [](const KeptBlock& block) { return block.fp8 != Fp8Recipe::none; }))
        plan_fp8_scratch(arena, largest, blocks);
    if (precision.residual != compute) scratch_.dresidual_compute = make(largest.held, largest.hidden);
    {
        const Arena::Scope feed_forward(arena);
        scratch_.dactivated = make(largest.expert_rows(), largest.ffn);
        if (largest.experts > 0) plan_expert_scratch(arena, largest, compute, mode);
    }
    {
        const Arena::Scope attention(arena);
        scratch_.dattended = make(largest.tokens, largest.query_columns());
        scratch_.dqkv = make(largest.tokens, largest.qkv_columns());
    }
}

void ActivationBuffers::plan_adapter_scratch(Arena& arena, const BlockShape& largest, DType compute,
                                             const std::vector<KeptBlock>& blocks) {
    std::int64_t most_adapted = 0, most_dropped = 0, most_lengths = 0;
    for (const KeptBlock& block : blocks) {
        for (std::size_t i = 0; i < block.ranks.size(); ++i)
            if (block.ranks[i] > 0) {
                most_adapted = std::max(most_adapted, rows_of(largest, i) * block.ranks[i]);
                if (block.magnitudes)
                    most_lengths = std::max(
                        most_lengths, (output_columns(largest, i) + block.ranks[i]) * (block.ranks[i] + 1));
                if (block.adapters_drop)
                    most_dropped = std::max(most_dropped, rows_of(largest, i) * input_columns(largest, i));
            }
        if (block.router_rank == 0) continue;
        most_adapted = std::max(most_adapted, 2 * largest.tokens * block.router_rank);
        if (block.adapters_drop) most_dropped = std::max(most_dropped, largest.tokens * largest.hidden);
    }
    if (most_adapted == 0) return;
    scratch_.dadapter_inputs = arena.make(MemoryUse::scratch, compute, {most_adapted});
    if (most_lengths > 0) {
        scratch_.row_lengths = arena.make(MemoryUse::scratch, DType::f32, {most_lengths});
        const bool scales_gate_up = std::any_of(blocks.begin(), blocks.end(), [](const KeptBlock& block) {
            return block.rank_of(AdaptedMatrix::gate_up) > 0;
        });
        if (scales_gate_up)
            scratch_.dgate_up = arena.make(MemoryUse::scratch, compute, {largest.tokens, 2 * largest.ffn});
        scratch_.scaled = arena.make(MemoryUse::scratch, compute, {largest.tokens, largest.hidden});
    }
    if (most_dropped > 0) scratch_.dropped = arena.make(MemoryUse::scratch, compute, {most_dropped});
}

void ActivationBuffers::plan_fp8_scratch(Arena& arena, const BlockShape& largest,
                                         const std::vector<KeptBlock>& blocks) {
    RoomSize input_room, weight_room, gradient_room, transposed_gradient_room;
    for (const KeptBlock& block : blocks) {
        const Fp8Scales of_rows = fp8_scales(block.fp8, Fp8Operand::input),
                        of_weights = fp8_scales(block.fp8, Fp8Operand::weight);
        for (std::size_t i = 0; i < static_cast<std::size_t>(AdaptedMatrix::count); ++i) {
            const std::int64_t matrices = is_of_experts(largest, i) ? largest.experts : 1;
            const std::int64_t rows = is_of_experts(largest, i)
                                          ? expert_columns(largest.expert_rows(), largest.experts)
                                          : fp8_rows(largest.tokens, block.fp8);
            const std::int64_t input = input_columns(largest, i), output = output_columns(largest, i);
            input_room.hold(of_rows, rows, input);
            input_room.hold(of_rows, input, rows);
            gradient_room.hold(of_rows, rows, output);
            if (!block.frozen[i]) transposed_gradient_room.hold(of_rows, output, rows);
            // Of a weight that is kept, only the transpose's numbers are made.
            const Fp8Scales made = block.keeps_fp8_weights(i) ? Fp8Scales::one : of_weights;
            weight_room.hold(made, matrices * output, input, matrices);
            weight_room.hold(made, matrices * input, output, matrices);
        }
    }
    scratch_.fp8 = {.input = input_room.make(arena, MemoryUse::scratch),
                    .weight = weight_room.make(arena, MemoryUse::scratch),
                    .gradient = gradient_room.make(arena, MemoryUse::scratch),
                    .transposed_gradient = transposed_gradient_room.make(arena, MemoryUse::scratch)};
}

void ActivationBuffers::plan_expert_scratch(Arena& arena, const BlockShape& largest, DType compute,
                                            MoeMode mode) {
    const auto make = [&](DType dtype, const Shape& shape) {
        return arena.make(MemoryUse::scratch, dtype, shape);
    };
    scratch_.expert_rows = make(compute, {largest.expert_rows(), largest.hidden});
    scratch_.router_logits = make(DType::f32, {largest.tokens, largest.experts});
    scratch_.drouter_logits = make(compute, {largest.tokens, largest.experts});
    scratch_.dslot_weights = make(DType::f32, {largest.tokens, largest.slots});
    if (mode == MoeMode::stacked) {
        scratch_.stacked_gate_up = make(compute, {largest.experts * 2 * largest.ffn, largest.hidden});
        scratch_.stacked_down = make(compute, {largest.experts * largest.hidden, largest.ffn});
    }
}

}  // namespace drover
