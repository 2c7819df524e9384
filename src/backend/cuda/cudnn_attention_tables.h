#pragma once

#include "backend/cuda/cudnn_attention_graph.h"
#include "backend/cuda/kernels/sequence_map.h"

/// Lengths and offsets of given sequences, in the form that a graph reads.
namespace drover::cuda::cudnn {

/// Where the tables are in an operation's memory.
struct TablePlaces {
    std::size_t length, offset;

    TablePlaces(ScratchParts& parts, const Problem& problem, const Pieces& pieces)
        : length(parts.add(pieces.total * 4)), offset(parts.add((pieces.total + 1) * problem.count * 8)) {}
};

inline RaggedTables fill_tables(const Launch& launch, const Problem& problem, const Pieces& pieces,
                                const TablePlaces& places, std::byte* memory) {
    RaggedTables tables{.batch = pieces.total,
                        .strides = problem.count,
                        .length = reinterpret_cast<std::int32_t*>(memory + places.length),
                        .offset = reinterpret_cast<std::int64_t*>(memory + places.offset)};
    for (int operand = 0; operand < problem.count; ++operand)
        tables.stride[operand] = problem.tensor[operand].stride(0);
    fill_ragged_tables(launch, problem.sequences, tables);
    return tables;
}

/// Lengths and offsets of the sequences from `first` on.
inline void bind_tables(Bindings& bindings, const Problem& problem, const RaggedTables& tables,
                        std::int64_t first) {
    bindings[query_lengths] = bindings[key_lengths] = tables.length + first;
    for (int operand = 0; operand < problem.count; ++operand)
        bindings[offsets + operand] = tables.offset + operand * (tables.batch + 1) + first;
}

}  // namespace drover::cuda::cudnn
