#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace drover {

/// One micro-batch on the host: `rows` rows of `row_length` tokens, next-token targets beside them.
struct TokenBatch {
    std::int64_t rows = 0;
    std::int64_t row_length = 0;
    std::vector<std::int32_t> ids;             ///< [rows·row_length]
    std::vector<std::int32_t> targets;         ///< the next token, ignored_target where there is none
    std::vector<std::int32_t> positions;       ///< position of each token in its sequence
    std::vector<std::int32_t> sequence_begin;  ///< see Sequences; empty when every row is one sequence
    std::vector<std::int32_t> sequence_length;
    std::int64_t label_count = 0;  ///< labels ≠ −100, those without a prediction included
    /// There are no tokens: it stands for any batch of these rows while a run is planned.
    bool is_shape_only = false;

    std::int64_t tokens() const { return rows * row_length; }
    std::int64_t target_count() const;
    /// Rows [begin, begin + count) as a batch, whose label_count is not known and 0.
    TokenBatch some_rows(std::int64_t begin, std::int64_t count) const;

    /// Full rows; `labels` are aligned with ids (Hugging Face's convention), the shift is made here.
    static TokenBatch from_labels(std::int64_t rows, std::int64_t row_length,
                                  std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);
    /// Right-padded rows: row r has lengths[r] tokens; the padding attends to nothing and has no targets.
    static TokenBatch right_padded(std::int64_t rows, std::int64_t row_length,
                                   std::span<const std::int32_t> ids, std::span<const std::int32_t> labels,
                                   std::span<const std::int32_t> lengths);
    /// Rows that hold several sequences each, one after the other: row r's lengths are row_lengths[r], whose
    /// sum is at most row_length. Attention, positions and targets stay inside a sequence.
    static TokenBatch packed(std::int64_t rows, std::int64_t row_length, std::span<const std::int32_t> ids,
                             std::span<const std::int32_t> labels,
                             std::span<const std::vector<std::int32_t>> row_lengths);
};

/// Which noise the tokens of a micro-batch get in training, on whatever rank they are.
struct TokenNoise {
    std::uint64_t seed = 0;
    std::uint64_t micro_batch = 0;  ///< its number within the step
    std::int64_t first_token =
        0;           ///< where its first token stands when the replicas' tokens follow each other
    Tensor scalars;  ///< [StepScalar::count] f32, for the number of the update
};

/// A micro-batch on the device.
struct MicroBatch {
    Tensor ids;        ///< [N] i32
    Tensor targets;    ///< [N] i32
    Tensor positions;  ///< [N] i32
    Tensor counts;     ///< [N] i32: 0 for tokens in no sequence; absent when there are none
    Sequences sequences;
    std::optional<TokenNoise> noise{};  ///< absent in evaluation

    std::int64_t tokens() const { return sequences.tokens(); }
};

}  // namespace drover
