#pragma once

#include "backend/cpu/kernels/integer_math.h"
#include "backend/cpu/kernels/vector_math.h"

/// Heads, sequences and which query sees which key, for all attention kernels.
namespace drover::cpu::DROVER_ISA {

/// One head of the tokens of a [N,heads,D] tensor.
template <class T>
struct HeadRows {
    T* data;
    std::int64_t stride;
    std::int64_t head_size;

    HeadRows(const Tensor& tensor, std::int64_t head)
        : data(static_cast<T*>(tensor.raw()) + head * tensor.stride(1)),
          stride(tensor.stride(0)),
          head_size(tensor.size(2)) {}
    T* row(std::int64_t token) const { return data + token * stride; }
    /// Floats between rows of a packed tile.
    std::int64_t pitch() const { return round_up(head_size, 16); }
};

template <class T>
inline void zero_tokens(const HeadRows<T>& head, std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token)
        for_each_vector(head.head_size, [&](auto at) { store(head.row(token), at, Floats{}); });
}

/// Row r of a tile sees the columns [begin + r, end + r).
struct Band {
    std::int64_t begin;
    std::int64_t end;

    /// Rows are keys from `first_key`, columns are queries from `first_query`.
    static Band of_keys(std::int64_t first_key, std::int64_t first_query, std::int64_t window) {
        const std::int64_t begin = first_key - first_query;
        return {begin, window > 0 ? begin + window : unbounded};
    }
    /// Rows are queries, columns are keys.
    static Band of_queries(std::int64_t first_query, std::int64_t first_key, std::int64_t window) {
        const std::int64_t end = first_query - first_key + 1;
        return {window > 0 ? end - window : -unbounded, end};
    }

    bool whole(std::int64_t row, std::int64_t rows, std::int64_t columns) const {
        return begin + row + rows - 1 <= 0 && end + row >= columns;
    }

    /// All ones in the lanes from `column` that the row sees.
    Ints visible(std::int64_t row, std::int64_t column) const {
        Ints index;
        for (int i = 0; i < lanes; ++i) index[i] = i;
        index += static_cast<std::int32_t>(column);
        const auto clamp = [](std::int64_t x) {
            return static_cast<std::int32_t>(x < -unbounded ? -unbounded : x > unbounded ? unbounded : x);
        };
        return (index >= clamp(begin + row)) & (index < clamp(end + row));
    }

    static constexpr std::int64_t unbounded = 1 << 30;
};

// ----------------------------------------------------------------------------------------------------
// sequences

/// The sequences of a micro-batch, and how the work is cut: the tokens into cells of `block`; a cell's work
/// is every block of a sequence that starts in it, and the tokens in no sequence.
class SequenceCells {
  public:
    SequenceCells(const Sequences& sequences, std::int64_t block)
        : begin_(static_cast<const std::int32_t*>(sequences.begin.raw())),
          length_(static_cast<const std::int32_t*>(sequences.length.raw())),
          count_(begin_ ? sequences.begin.size(0) : sequences.rows),
          row_length_(sequences.row_length),
          tokens_(sequences.tokens()),
          block_(block) {}

    std::int64_t count() const { return (tokens_ + block_ - 1) / block_; }
    std::int64_t sequence_count() const { return count_; }

    /// Calls body(first token of a sequence, its length, offset of the block in it, tokens in the block).
    template <class Body>
    void for_each_block(std::int64_t cell, const Body& body) const {
        const std::int64_t cell_begin = cell * block_, cell_end = smaller(tokens_, cell_begin + block_);
        for (std::int64_t s = first_ending_after(cell_begin); s < count_ && begin(s) < cell_end; ++s) {
            const std::int64_t offset = round_up(larger(0, cell_begin - begin(s)), block_);
            const std::int64_t length = end(s) - begin(s);
            if (offset < length && begin(s) + offset < cell_end)
                body(begin(s), length, offset, smaller(block_, length - offset));
        }
    }

    /// Calls body(begin, end) for each range of the cell's tokens that is in no sequence.
    template <class Body>
    void for_each_gap(std::int64_t cell, const Body& body) const {
        std::int64_t covered = cell * block_;
        const std::int64_t cell_end = smaller(tokens_, covered + block_);
        for (std::int64_t s = first_ending_after(covered); s < count_ && begin(s) < cell_end; ++s) {
            if (begin(s) > covered) body(covered, begin(s));
            covered = larger(covered, end(s));
        }
        if (covered < cell_end) body(covered, cell_end);
    }

    /// Flat indices of a sequence's first token and of the one after its last.
    std::int64_t begin(std::int64_t s) const { return begin_ ? begin_[s] : s * row_length_; }
    std::int64_t end(std::int64_t s) const { return begin(s) + (length_ ? length_[s] : row_length_); }

  private:
    std::int64_t first_ending_after(std::int64_t token) const {
        std::int64_t low = 0, high = count_;
        while (low < high) {
            const std::int64_t middle = (low + high) / 2;
            if (end(middle) > token)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }

    const std::int32_t* begin_;
    const std::int32_t* length_;
    std::int64_t count_, row_length_, tokens_, block_;
};

/// One head's values in a [rows,heads,row_length] tensor, by flat token index.
inline float* statistics_of(const Tensor& lse, std::int64_t head, std::int64_t token) {
    const std::int64_t row_length = lse.size(2);
    return static_cast<float*>(lse.raw()) + token / row_length * lse.stride(0) + head * lse.stride(1) +
           token % row_length;
}

}  // namespace drover::cpu::DROVER_ISA
