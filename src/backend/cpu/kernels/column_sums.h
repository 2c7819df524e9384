#pragma once

#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"

namespace drover::cpu::DROVER_ISA {

/// out[c] (+)= Σ over rows of a matrix that is never stored. Threads share the columns, and each walks the
/// rows in order: `add_row(row, first_column, width, sums)` adds that piece of a row to sums[0..width). Sums
/// are kept in fp32, 64 rows at a time so that their rounding does not grow with the number of rows, and
/// rounded to `Out` at the end.
template <class Out, class AddRow>
inline void sum_columns(std::int64_t rows, std::int64_t columns, Out* out, bool accumulate,
                        const AddRow& add_row) {
    constexpr std::int64_t block_columns = 128, block_rows = 64;
    for_each_range(columns, block_columns, [&](std::int64_t first_column, std::int64_t end_column) {
        const std::int64_t width = end_column - first_column;
        alignas(64) float total[block_columns] = {};
        for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
            const std::int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
            alignas(64) float partial[block_columns] = {};
            for (std::int64_t row = begin; row < end; ++row) add_row(row, first_column, width, partial);
            for_each_vector(width, [&](auto at) { store(total, at, load(total, at) + load(partial, at)); });
        }
        for_each_vector(width, [&](auto at) {
            const Floats sum = load(total, at);
            store(out + first_column, at, accumulate ? load(out + first_column, at) + sum : sum);
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
