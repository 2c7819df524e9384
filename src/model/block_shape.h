#pragma once

#include <cstdint>

#include "parallel/tensor_parallel.h"

namespace drover {

struct ModelConfig;

/// How a mixture of experts is computed. The results are equal within rounding.
enum class MoeMode : std::uint8_t {
    grouped,     ///< `--gmm`: tokens sorted by expert, one grouped product
    stacked,     ///< `--gmm_stack`: the same from weights that are copied together first
    all_tokens,  ///< `--static`: every expert gets every token
};

/// The sizes of a decoder block on this rank: heads and widths are its share of the model's.
struct BlockShape {
    std::int64_t rows = 0;        ///< of the micro-batch
    std::int64_t row_length = 0;  ///< T
    std::int64_t tokens = 0;      ///< N = rows · row_length
    std::int64_t held = 0;        ///< tokens held between blocks: N, or this rank's share of them
    std::int64_t hidden = 0;      ///< H
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;  ///< D
    bool head_norms = false;    ///< see ModelConfig
    std::int64_t ffn = 0;       ///< I
    std::int64_t experts = 0;   ///< E; 0: dense feed-forward
    std::int64_t slots = 1;     ///< W: feed-forward rows per token (see backend/ops/experts.h); 1 when dense

    std::int64_t expert_rows() const { return tokens * slots; }  ///< M; N when dense
    std::int64_t query_columns() const { return heads * head_dim; }
    std::int64_t key_value_columns() const { return kv_heads * head_dim; }
    std::int64_t qkv_columns() const { return query_columns() + 2 * key_value_columns(); }
    std::int64_t query_key_columns() const { return query_columns() + key_value_columns(); }

    /// The shape for micro-batches of rows × row_length tokens.
    static BlockShape make(const ModelConfig& config, MoeMode mode, const TensorParallel& parallel,
                           std::int64_t rows, std::int64_t row_length);
};

/// Error when the model's heads cannot be spread over `ranks` of tensor parallelism.
void check_tensor_parallel(const ModelConfig& config, int ranks);

/// How many neighbours along tensor parallelism hold the same key/value heads.
int key_value_copies(const ModelConfig& config, int ranks);

}  // namespace drover
