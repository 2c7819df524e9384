#pragma once

#include <cstdint>

#include "backend/cuda/kernels.h"

/// Which tokens of a micro-batch belong together, made on the device, where begin and length of Sequences
/// live.
namespace drover::cuda {

/// The sequence that a token is in: its index and its tokens [begin, end). Index −1 and no tokens for one in
/// none.
struct SequenceOfToken {
    std::int32_t index, begin, end;
};

/// Fills map[tokens].
void map_tokens(const Launch& launch, const Sequences& sequences, SequenceOfToken* map);

/// x[N,heads,D] = 0 at tokens in no sequence; nothing else is touched. Rows are aligned to 16 bytes.
void zero_gaps(const Launch& launch, const Tensor& x, const SequenceOfToken* map);

/// What cuDNN wants to know of variable lengths, for `batch` ≥ S sequences (those beyond the last have no
/// tokens) and their queries [first_query, end_query) against their keys [first_key, end_query).
struct RaggedTables {
    static constexpr int max_strides = 8;
    std::int64_t first_query = 0, end_query = 0, first_key = 0;
    std::int64_t batch = 0;
    int strides = 0;
    std::int64_t stride[max_strides] = {};
    bool of_keys[max_strides] = {};
    /// [batch]: how many of them a sequence has; no keys where it has no queries.
    std::int32_t *query_length = nullptr, *key_length = nullptr;
    /// [i][batch + 1]: a sequence's first one (a query or a key) times stride[i], the last one all tokens.
    std::int64_t* offset = nullptr;
    /// [2], optional: 0 and piece_elements.
    std::int64_t* piece_offset = nullptr;
    std::int64_t piece_elements = 0;
};
void fill_ragged_tables(const Launch& launch, const Sequences& sequences, const RaggedTables& tables);

/// Between lse[rows,heads,row_length] and the statistics[batch,head_count,row_length] of the sequences
/// [first, first + batch) and the heads [first_head, first_head + head_count).
struct StatisticsPart {
    std::int64_t first = 0, batch = 0, first_head = 0, head_count = 0;
    float* statistics = nullptr;
};
void statistics_to_lse(const Launch& launch, const StatisticsPart& part, const SequenceOfToken* map,
                       const Tensor& lse);
void lse_to_statistics(const Launch& launch, const StatisticsPart& part, const SequenceOfToken* map,
                       const Tensor& lse);

}  // namespace drover::cuda
