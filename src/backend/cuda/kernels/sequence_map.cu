#include "backend/cuda/kernels/device_code.cuh"
#include "backend/cuda/kernels/sequence_map.h"

namespace drover::cuda {
namespace {

constexpr int threads = 256;

__global__ void whole_rows(SequenceOfToken* map, std::int32_t tokens, std::int32_t row_length) {
    const std::int32_t token = blockIdx.x * threads + threadIdx.x;
    if (token >= tokens) return;
    const std::int32_t row = token / row_length;
    map[token] = {row, row * row_length, (row + 1) * row_length};
}

__global__ void no_sequences(SequenceOfToken* map, std::int32_t tokens) {
    const std::int32_t token = blockIdx.x * threads + threadIdx.x;
    if (token < tokens) map[token] = {-1, 0, 0};
}

/// One block per sequence.
__global__ void given_sequences(SequenceOfToken* map, const std::int32_t* begin, const std::int32_t* length) {
    const std::int32_t index = blockIdx.x, first = begin[index], end = first + length[index];
    for (std::int32_t token = first + threadIdx.x; token < end; token += threads)
        map[token] = {index, first, end};
}

/// Places of [N,heads,head_size] elements.
struct Places {
    std::int64_t token_stride, head_stride;
};

/// One block per token. Elements are only moved, so they are taken as words of any kind. Without `from`, only
/// gaps are written.
template <class Word>
__global__ void copy_or_zero(const Word* from, Places from_places, Word* to, Places to_places, int heads,
                             int head_size, const SequenceOfToken* map) {
    const std::int64_t token = blockIdx.x;
    const bool gap = map[token].index < 0;
    if (from == nullptr && !gap) return;
#pragma unroll 4
    for (int i = threadIdx.x; i < heads * head_size; i += threads) {
        const int head = i / head_size, d = i % head_size;
        to[token * to_places.token_stride + head * to_places.head_stride + d] =
            gap ? Word{} : from[token * from_places.token_stride + head * from_places.head_stride + d];
    }
}

__global__ void ragged_tables(const std::int32_t* begin, const std::int32_t* length, std::int64_t sequences,
                              std::int64_t tokens, RaggedTables tables) {
    const std::int64_t s = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (s > tables.batch) return;
    if (s < tables.batch) tables.length[s] = s < sequences ? length[s] : 0;
    const std::int64_t first = s < sequences ? begin[s] : tokens;
    for (int i = 0; i < tables.strides; ++i)
        tables.offset[i * (tables.batch + 1) + s] = first * tables.stride[i];
}

template <bool to_lse>
__global__ void move_statistics(StatisticsPart part, const SequenceOfToken* map, float* lse,
                                std::int64_t heads, std::int64_t row_length, std::int64_t tokens) {
    const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x,
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
    const dim3 grid(static_cast<unsigned>(ceil_div(tokens, threads)), static_cast<unsigned>(part.head_count));
    move_statistics<to_lse><<<grid, threads, 0, launch.stream>>>(part, map, elements<float>(lse), lse.size(1),
                                                                 row_length, tokens);
    check_launch("attention's statistics");
}

/// Where `from` is absent, only the gaps of `to` are written.
void launch_copy(const Launch& launch, const void* from, Places from_places, void* to, Places to_places,
                 const Tensor& like, const SequenceOfToken* map) {
    if (like.numel() == 0) return;
    const auto size = static_cast<std::int64_t>(size_of(like.dtype()));
    const auto run = [&]<class Word>() {
        const std::int64_t elements_of_word = static_cast<std::int64_t>(sizeof(Word)) / size;
        const auto in_words = [&](Places places) {
            return Places{places.token_stride / elements_of_word, places.head_stride / elements_of_word};
        };
        copy_or_zero<Word><<<static_cast<unsigned>(like.size(0)), threads, 0, launch.stream>>>(
            static_cast<const Word*>(from), in_words(from_places), static_cast<Word*>(to),
            in_words(to_places), static_cast<int>(like.size(1)),
            static_cast<int>(like.size(2) / elements_of_word), map);
    };
    const auto whole = [&](const void* data, Places places) {
        return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && places.token_stride * size % 16 == 0 &&
               places.head_stride * size % 16 == 0;
    };
    if (like.size(2) * size % 16 == 0 && whole(from, from_places) && whole(to, to_places))
        run.template operator()<uint4>();
    else if (size == 4)
        run.template operator()<std::uint32_t>();
    else
        run.template operator()<std::uint16_t>();
    check_launch("attention's gaps");
}

}  // namespace

void map_tokens(const Launch& launch, const Sequences& sequences, SequenceOfToken* map) {
    const auto tokens = static_cast<std::int32_t>(sequences.tokens());
    if (tokens == 0) return;
    const auto blocks = static_cast<unsigned>(ceil_div(tokens, threads));
    if (!sequences.begin) {
        whole_rows<<<blocks, threads, 0, launch.stream>>>(map, tokens,
                                                          static_cast<std::int32_t>(sequences.row_length));
    } else {
        no_sequences<<<blocks, threads, 0, launch.stream>>>(map, tokens);
        if (sequences.begin.size(0) > 0)
            given_sequences<<<static_cast<unsigned>(sequences.begin.size(0)), threads, 0, launch.stream>>>(
                map, elements<const std::int32_t>(sequences.begin),
                elements<const std::int32_t>(sequences.length));
    }
    check_launch("the map of sequences");
}

void copy_sequences(const Launch& launch, const Tensor& from, const SequenceOfToken* map, void* to) {
    launch_copy(launch, from.raw(), {from.stride(0), from.stride(1)}, to,
                {from.size(1) * from.size(2), from.size(2)}, from, map);
}

void zero_gaps(const Launch& launch, const Tensor& x, const SequenceOfToken* map) {
    launch_copy(launch, nullptr, {}, x.raw(), {x.stride(0), x.stride(1)}, x, map);
}

void fill_ragged_tables(const Launch& launch, const Sequences& sequences, const RaggedTables& tables) {
    ragged_tables<<<static_cast<unsigned>(ceil_div(tables.batch + 1, threads)), threads, 0, launch.stream>>>(
        elements<const std::int32_t>(sequences.begin), elements<const std::int32_t>(sequences.length),
        sequences.begin.size(0), sequences.tokens(), tables);
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
