#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace drover {

/// The label of a position at which nothing is to be predicted, as in Hugging Face.
inline constexpr std::int32_t no_label = -100;

/// A place in a run's data.
struct BatchPosition {
    std::int64_t epoch = 0;
    std::int64_t step = 0;  ///< batch of this rank in the epoch

    bool operator==(const BatchPosition&) const = default;
};

/// Rows of tokens with their labels, on the host: the form of data on which a model is trained.
struct Batch {
    std::int64_t rows = 0;
    std::int64_t row_length = 0;
    std::vector<std::int32_t> ids{};     ///< [rows·row_length]
    std::vector<std::int32_t> labels{};  ///< aligned with the ids (Hugging Face's convention), or no_label
    /// Where each sequence begins among the ids, and how many of them it has. Attention, positions and
    /// targets stay inside a sequence; ids in none are padding. Empty when every row is one sequence.
    std::vector<std::int32_t> sequence_begin{};
    std::vector<std::int32_t> sequence_length{};

    BatchPosition position{};
    /// Rows at the end that only fill up the batch, repeated or masked. Evaluation does not count them.
    std::int64_t filler_rows = 0;

    /// A batch that replicas share.
    struct Whole {
        std::int64_t rows = 0;
        std::int64_t attended_tokens = 0;
    };
    std::optional<Whole> part_of{};  ///< what this is one replica's part of; absent: a batch of its own

    std::int64_t tokens() const { return rows * row_length; }
    /// Has no ids: a placeholder for any batch of its shape while a run is planned.
    bool is_shape_only() const { return tokens() > 0 && ids.empty(); }
    /// Tokens that are not padding.
    std::int64_t attended_tokens() const;
    /// Of the batch that this is a part of; otherwise its own.
    Whole whole() const { return part_of.value_or(Whole{rows, attended_tokens()}); }

    /// The target of every id: the next label in its sequence, or no_label.
    std::vector<std::int32_t> targets() const;
    /// The position of every id in its sequence; 0 for padding.
    std::vector<std::int32_t> positions() const;
    std::int64_t target_count() const;
    /// Labels inside sequences, including those without a prediction.
    std::int64_t label_count() const;

    /// Rows [begin, begin + count) as a batch of their own.
    Batch some_rows(std::int64_t begin, std::int64_t count) const;

    /// For planning: neither ids nor labels.
    static Batch of_shape(std::int64_t rows, std::int64_t row_length) {
        return {.rows = rows, .row_length = row_length};
    }
    /// Rows without padding, each one sequence.
    static Batch full_rows(std::int64_t rows, std::int64_t row_length, std::vector<std::int32_t> ids,
                           std::vector<std::int32_t> labels);
    /// Row r is one sequence of lengths[r] tokens, followed by padding.
    static Batch right_padded(std::int64_t rows, std::int64_t row_length, std::vector<std::int32_t> ids,
                              std::vector<std::int32_t> labels, std::span<const std::int32_t> lengths);
    /// Rows that hold several sequences each, one after the other: row r's lengths are row_lengths[r], whose
    /// sum is at most row_length.
    static Batch packed(std::int64_t rows, std::int64_t row_length, std::vector<std::int32_t> ids,
                        std::vector<std::int32_t> labels,
                        std::span<const std::vector<std::int32_t>> row_lengths);

    /// Omits the sequences where they only say that every row is one.
    void drop_needless_sequences();
};

}  // namespace drover
