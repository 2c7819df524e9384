#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "backend/ops.h"

/// What cuDNN's attention is asked for: both operations in one form, and the pieces that they are done in.
namespace drover::cuda::cudnn {

/// Memory for the scores' gradients of one piece of a deterministic backward.
inline constexpr std::int64_t piece_bytes = std::int64_t{4} << 30;
/// Memory for the statistics of one piece of a forward with given sequences.
inline constexpr std::int64_t statistics_bytes = std::int64_t{256} << 20;

enum Operand : int { q, k, v, out, dout, dq, dk, dv, operands };

inline bool of_keys(int operand) {
    return operand == k || operand == v || operand == dk || operand == dv;
}
/// What is copied when sequences are given.
inline bool copied(int operand) {
    return operand == q || operand == k || operand == v || operand == dout;
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
    std::int64_t head_size() const { return tensor[q].size(2); }
    std::int64_t token_stride(int operand) const {
        const Tensor& x = tensor[operand];
        return ragged() && copied(operand) ? x.size(1) * x.size(2) : x.stride(0);
    }
    std::int64_t head_stride(int operand) const {
        const Tensor& x = tensor[operand];
        return ragged() && copied(operand) ? x.size(2) : x.stride(1);
    }
};

inline std::int64_t largest_divisor(std::int64_t number, std::int64_t limit) {
    std::int64_t divisor = std::clamp<std::int64_t>(limit, 1, number);
    while (number % divisor != 0) --divisor;
    return divisor;
}

/// What one execution of the graph covers. All pieces of an operation are of one size, so that they share a
/// plan.
struct Pieces {
    std::int64_t total, batch;  ///< sequences (or rows), and those of one piece
    std::int64_t key_heads;     ///< of one piece; all of them unless batch is 1

    explicit Pieces(const Problem& problem) {
        // With given sequences their number is rounded up (by empty ones), so that few plans are made.
        total = problem.ragged() ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(
                                       std::max<std::int64_t>(problem.sequences.begin.size(0), 1))))
                                 : problem.sequences.rows;
        const std::int64_t length = problem.sequences.row_length, heads = problem.heads();
        batch = total;
        key_heads = problem.key_heads();
        if (problem.backward()) {
            const std::int64_t of_head = (length + 63) / 64 * 64 * ((length + 127) / 128 * 128) * 2;
            batch = largest_divisor(total, piece_bytes / (of_head * heads));
            if (batch == 1)
                key_heads = largest_divisor(key_heads, piece_bytes / (of_head * (heads / key_heads)));
        } else if (problem.ragged()) {
            batch = largest_divisor(total, statistics_bytes / (heads * length * 4));
        }
    }
};

}  // namespace drover::cuda::cudnn
