#include "backend/cuda/kernels/device_code.cuh"
#include "backend/cuda/kernels/sequence_map.h"

namespace drover::cuda {
namespace {

constexpr int map_threads = 256;

__global__ void whole_rows(SequenceOfToken* map, std::int32_t tokens, std::int32_t row_length) {
    const std::int32_t token = blockIdx.x * map_threads + threadIdx.x;
    if (token >= tokens) return;
    const std::int32_t row = token / row_length;
    map[token] = {row, row * row_length, (row + 1) * row_length};
}

__global__ void no_sequences(SequenceOfToken* map, std::int32_t tokens) {
    const std::int32_t token = blockIdx.x * map_threads + threadIdx.x;
    if (token < tokens) map[token] = {-1, 0, 0};
}

/// One block per sequence.
__global__ void given_sequences(SequenceOfToken* map, const std::int32_t* begin, const std::int32_t* length) {
    const std::int32_t index = blockIdx.x, first = begin[index], end = first + length[index];
    for (std::int32_t token = first + threadIdx.x; token < end; token += map_threads)
        map[token] = {index, first, end};
}

/// One warp per token, 16 bytes at a time.
__global__ void zero_gap_rows(uint4* x, std::int64_t token_stride, std::int64_t head_stride, int heads,
                              int head_size, const SequenceOfToken* map, std::int64_t tokens) {
    const std::int64_t token = (static_cast<std::int64_t>(blockIdx.x) * map_threads + threadIdx.x) / 32;
    if (token >= tokens || map[token].index >= 0) return;
    for (int i = threadIdx.x % 32; i < heads * head_size; i += 32)
        x[token * token_stride + i / head_size * head_stride + i % head_size] = uint4{};
}

__global__ void ragged_tables(const std::int32_t* begin, const std::int32_t* length, std::int64_t sequences,
                              std::int64_t tokens, RaggedTables tables) {
    const std::int64_t s = static_cast<std::int64_t>(blockIdx.x) * map_threads + threadIdx.x;
    if (s > tables.batch) return;
    const std::int64_t first = s < sequences ? begin[s] : tokens;
    if (s < tables.batch) tables.length[s] = s < sequences ? length[s] : 0;
    for (int i = 0; i < tables.strides; ++i)
        tables.offset[i * (tables.batch + 1) + s] = first * tables.stride[i];
}

template <bool to_lse>
__global__ void move_statistics(StatisticsPart part, const SequenceOfToken* map, float* lse,
                                std::int64_t heads, std::int64_t row_length, std::int64_t tokens) {
    const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * map_threads + threadIdx.x,
                       head = blockIdx.y;
    if (token >= tokens) return;
    const SequenceOfToken sequence = map[token];
    if (sequence.index < part.first || sequence.index >= part.first + part.batch) return;
    float& ours =
        lse[(token / row_length * heads + part.first_head + head) * row_length + token % row_length];
    float& theirs = part.statistics[((sequence.index - part.first) * part.head_count + head) * row_length +
                                    token - sequence.begin];
    if (to_lse)
        ours = theirs;
    else
        theirs = ours;
}

template <bool to_lse>
void launch_statistics(const Launch& launch, const StatisticsPart& part, const SequenceOfToken* map,
                       const Tensor& lse) {
    const std::int64_t row_length = lse.size(2), tokens = lse.size(0) * row_length;
    if (tokens == 0 || part.head_count == 0) return;
    const dim3 grid(static_cast<unsigned>(ceil_div(tokens, map_threads)),
                    static_cast<unsigned>(part.head_count));
    move_statistics<to_lse><<<grid, map_threads, 0, launch.stream>>>(part, map, elements<float>(lse),
                                                                     lse.size(1), row_length, tokens);
    check_launch("attention's statistics");
}

}  // namespace

void map_tokens(const Launch& launch, const Sequences& sequences, SequenceOfToken* map) {
    const auto tokens = static_cast<std::int32_t>(sequences.tokens());
    if (tokens == 0) return;
    const auto blocks = static_cast<unsigned>(ceil_div(tokens, map_threads));
    if (!sequences.begin) {
        whole_rows<<<blocks, map_threads, 0, launch.stream>>>(
            map, tokens, static_cast<std::int32_t>(sequences.row_length));
    } else {
        no_sequences<<<blocks, map_threads, 0, launch.stream>>>(map, tokens);
        if (sequences.begin.size(0) > 0)
            given_sequences<<<static_cast<unsigned>(sequences.begin.size(0)), map_threads, 0,
                              launch.stream>>>(map, elements<const std::int32_t>(sequences.begin),
                                               elements<const std::int32_t>(sequences.length));
    }
    check_launch("the map of sequences");
}

void zero_gaps(const Launch& launch, const Tensor& x, const SequenceOfToken* map) {
    if (x.numel() == 0) return;
    const std::int64_t elements_of_word = 16 / static_cast<std::int64_t>(size_of(x.dtype()));
    const auto in_words = [&](std::int64_t count) {
        require(count % elements_of_word == 0, "gaps are zeroed in rows that are not aligned");
        return count / elements_of_word;
    };
    zero_gap_rows<<<static_cast<unsigned>(ceil_div(x.size(0), map_threads / 32)), map_threads, 0,
                    launch.stream>>>(elements<uint4>(x), in_words(x.stride(0)), in_words(x.stride(1)),
                                     static_cast<int>(x.size(1)), static_cast<int>(in_words(x.size(2))), map,
                                     x.size(0));
    check_launch("attention's gaps");
}

void fill_ragged_tables(const Launch& launch, const Sequences& sequences, const RaggedTables& tables) {
    ragged_tables<<<static_cast<unsigned>(ceil_div(tables.batch + 1, map_threads)), map_threads, 0,
                    launch.stream>>>(elements<const std::int32_t>(sequences.begin),
                                     elements<const std::int32_t>(sequences.length), sequences.begin.size(0),
                                     sequences.tokens(), tables);
    check_launch("the tables of sequences");
}

void statistics_to_lse(const Launch& launch, const StatisticsPart& part, const SequenceOfToken* map,
                       const Tensor& lse) {
    launch_statistics<true>(launch, part, map, lse);
}

void lse_to_statistics(const Launch& launch, const StatisticsPart& part, const SequenceOfToken* map,
                       const Tensor& lse) {
    launch_statistics<false>(launch, part, map, lse);
}

}  // namespace drover::cuda
