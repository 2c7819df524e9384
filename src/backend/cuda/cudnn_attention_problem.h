#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/gpu.h"
#include "backend/ops/attention.h"

/// The problem given to cuDNN's attention: both operations in one form, and the pieces that they are split
/// into.
namespace drover::cuda::cudnn {

/// Memory for the statistics of one piece of a forward with given sequences.
inline constexpr std::int64_t statistics_bytes = std::int64_t{256} << 20;

enum Operand : int { q, k, v, out, dout, dq, dk, dv, operands };

inline bool of_keys(int operand) {
    return operand == k || operand == v || operand == dk || operand == dv;
}

/// Both operations in one form.
struct Problem {
    int count;  ///< of operands: up to `out`, or all
    std::array<Tensor, operands> tensor;
    Tensor lse;
    Sequences sequences;
    float scale;
    std::int64_t window;

    explicit Problem(const Attention& op)
        : count(dout),
          tensor{op.q, op.k, op.v, op.out},
          lse(op.lse),
          sequences(op.sequences),
          scale(op.scale),
          window(op.window) {}
    explicit Problem(const AttentionBackward& op)
        : count(operands),
          tensor{op.q, op.k, op.v, op.out, op.dout, op.dq, op.dk, op.dv},
          lse(op.lse),
          sequences(op.sequences),
          scale(op.scale),
          window(op.window) {}

    bool backward() const { return count == operands; }
    bool ragged() const { return static_cast<bool>(sequences.begin); }
    std::int64_t heads() const { return tensor[q].size(1); }
    std::int64_t key_heads() const { return tensor[k].size(1); }
    std::int64_t group() const { return heads() / key_heads(); }
    std::int64_t head_size() const { return tensor[q].size(2); }
    DType dtype() const { return tensor[q].dtype(); }

    /// Address of an operand's element at a token and a head: `key_head` for operands of keys, else `head`.
    void* from(int operand, std::int64_t token, std::int64_t key_head, std::int64_t head) const {
        const Tensor& x = tensor[operand];
        const std::int64_t at = token * x.stride(0) + (of_keys(operand) ? key_head : head) * x.stride(1);
        return static_cast<std::byte*>(x.raw()) + at * static_cast<std::int64_t>(size_of(x.dtype()));
    }
};

inline std::int64_t largest_divisor(std::int64_t number, std::int64_t limit) {
    std::int64_t divisor = std::clamp<std::int64_t>(limit, 1, number);
    while (number % divisor != 0) --divisor;
    return divisor;
}

/// Queries [first_query, end_query) of a row against its keys [first_key, end_query), counted from the row's
/// first token.
struct Chunk {
    std::int64_t first_query, end_query, first_key;

    std::int64_t queries() const { return end_query - first_query; }
    std::int64_t keys() const { return end_query - first_key; }
};

/// Whether cuDNN has a backward of given sequences that gives the same bits every time. For GPUs of the
/// generations 8 and 12 it has none; versions before 9.18.1 do not refuse.
inline bool repeats_given_sequences(Capability gpu) {
    return gpu.major != 8 && gpu.major != 12;
}

/// Memory that deterministic backward on Hopper keeps for one head: the gradients of its scores.
inline std::int64_t score_bytes(std::int64_t queries, std::int64_t keys) {
    return (queries + 63) / 64 * 64 * ((keys + 127) / 128 * 128) * 2;
}

/// The part of an operation that one execution of a graph covers. All pieces of an operation are of one size,
/// except for chunks.
struct Pieces {
    std::int64_t total, batch;  ///< sequences (or rows), and those of one piece
    std::int64_t key_heads;     ///< of one piece; all of them unless batch is 1
    std::int64_t heads;         ///< query heads of one piece
    std::vector<Chunk> chunks;  ///< one of the whole row, unless not even one head of it fits
    /// Whether a piece is one query head, so that dk and dv are sums over the heads of a group and over the
    /// chunks.
    bool summed = false;

    /// `limit` bounds a piece's memory in backward.
    Pieces(const Problem& problem, std::int64_t limit) {
        // With given sequences their number is rounded up (by empty ones), so that few plans are made.
        total = problem.ragged() ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(
                                       std::max<std::int64_t>(problem.sequences.begin.size(0), 1))))
                                 : problem.sequences.rows;
        const std::int64_t length = problem.sequences.row_length;
        chunks = {{.first_query = 0, .end_query = length, .first_key = 0}};
        batch = total;
        key_heads = problem.key_heads();
        if (problem.backward()) {
            const std::int64_t of_head = score_bytes(length, length);
            batch = largest_divisor(total, limit / (of_head * problem.heads()));
            if (batch == 1) key_heads = largest_divisor(key_heads, limit / (of_head * problem.group()));
            summed = of_head * problem.group() > limit;
        } else if (problem.ragged()) {
            batch = largest_divisor(total, statistics_bytes / (problem.heads() * length * 4));
        }
        heads = summed ? 1 : key_heads * problem.group();
        if (!summed) return;
        chunks = chunks_within(limit - sums_bytes(problem), length, problem.window);
    }

    /// Memory for the sums of dk and dv in fp32, and for what one piece adds to them.
    static std::int64_t sums_bytes(const Problem& problem) {
        return problem.sequences.row_length * problem.head_size() * 2 *
               static_cast<std::int64_t>(sizeof(float) + size_of(problem.dtype()));
    }

  private:
    /// The fewest consecutive chunks that fit, in steps of 128 queries, which is also the smallest chunk.
    static std::vector<Chunk> chunks_within(std::int64_t limit, std::int64_t length, std::int64_t window) {
        constexpr std::int64_t step = 128;
        std::vector<Chunk> chunks;
        for (std::int64_t first = 0; first < length; first = chunks.back().end_query) {
            const std::int64_t seen = window > 0 ? std::max<std::int64_t>(first - window + 1, 0) : 0;
            Chunk chunk{.first_query = first, .end_query = first, .first_key = seen / step * step};
            do {
                chunk.end_query = std::min(chunk.end_query + step, length);
            } while (chunk.end_query < length &&
                     score_bytes(chunk.queries() + step, chunk.keys() + step) <= limit);
            // A last chunk of a few queries would need kernels of another kind.
            if (length - chunk.end_query < step)
                chunk.end_query =
                    chunk.queries() > step && chunk.end_query < length ? chunk.end_query - step : length;
            chunks.push_back(chunk);
        }
        return chunks;
    }
};

}  // namespace drover::cuda::cudnn
