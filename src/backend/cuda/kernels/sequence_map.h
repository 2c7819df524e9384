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

/// Variable lengths as cuDNN reads them, for `batch` ≥ S sequences (those beyond the last have no tokens).
struct RaggedTables {
    static constexpr int max_strides = 8;
    std::int64_t batch = 0;
    int strides = 0;
    std::int64_t stride[max_strides] = {};
    std::int32_t* length = nullptr;  ///< [batch]
    /// [i][batch + 1]: a sequence's first token times stride[i], the last one all tokens.
    std::int64_t* offset = nullptr;
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
