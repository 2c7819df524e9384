#include "model/block_shape.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/range.h"
#include "model/config.h"

namespace drover {

BlockShape BlockShape::make(const ModelConfig& config, MoeMode mode, const TensorParallel& parallel,
                            std::int64_t rows, std::int64_t row_length) {
    const int ranks = parallel.axis().size(), rank = parallel.axis().rank();
    const std::int64_t tokens = rows * row_length;
    if (parallel.splits_tokens() && tokens % ranks != 0)
        throw Error(
            fmt::format("A micro-batch of {} × {} tokens cannot be split over {} tensor-parallel ranks.",
                        rows, row_length, ranks),
            "With sequence parallel, make the tokens of a micro-batch a multiple of the ranks.");
    return {.rows = rows,
            .row_length = row_length,
            .tokens = tokens,
            .held = parallel.held_tokens(tokens),
            .hidden = config.hidden_size,
            .heads = config.num_attention_heads / ranks,
            .kv_heads = std::max<std::int64_t>(1, config.num_key_value_heads / ranks),
            .head_dim = config.head_dim,
            .head_norms = config.head_norms,
            .ffn = split_range(config.intermediate_size, ranks, rank).count,
            .experts = config.moe.experts,
            .slots = !config.has_experts()         ? 1
                     : mode == MoeMode::all_tokens ? config.moe.experts
                                                   : config.moe.chosen};
}

void check_tensor_parallel(const ModelConfig& config, int ranks) {
    const std::int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
    if (heads % ranks != 0)
        throw Error(
            fmt::format("{} attention heads cannot be spread over {} tensor-parallel ranks.", heads, ranks),
            "Choose a number of ranks that divides num_attention_heads.");
    if (kv_heads % ranks != 0 && ranks % kv_heads != 0)
        throw Error(fmt::format("{} key/value heads cannot be spread over {} tensor-parallel ranks.",
                                kv_heads, ranks),
                    "Choose a number of ranks that divides num_key_value_heads or is a multiple of it.");
    if (split_range(config.vocab_size, ranks, ranks - 1).count == 0 ||
        split_range(config.intermediate_size, ranks, ranks - 1).count == 0)
        throw Error(
            fmt::format(
                "A vocabulary of {} or a feed-forward width of {} is too small for {} tensor-parallel ranks.",
                config.vocab_size, config.intermediate_size, ranks),
            "Use fewer ranks.");
}

int key_value_copies(const ModelConfig& config, int ranks) {
    return static_cast<int>(std::max<std::int64_t>(1, ranks / config.num_key_value_heads));
}

}  // namespace drover
