#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace drover {

/// A read-only view of elements in a file, of any number of dimensions and with any strides. The elements
/// need not be aligned.
struct StridedTensor {
    const std::byte* data = nullptr;
    FileDType dtype = FileDType::F32;
    std::vector<std::int64_t> shape, strides;  ///< strides in elements, not negative

    /// Rows of the matrix that has the innermost dimension as its columns; a vector is one row.
    std::int64_t rows() const;
    std::int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
    std::int64_t column_stride() const { return strides.empty() ? 1 : strides.back(); }
    /// The first element of a row of that matrix.
    const std::byte* row(std::int64_t index) const;

    /// Of a matrix: row `begin` and every `step`-th after it.
    StridedTensor rows_apart(std::int64_t begin, std::int64_t step) const;

    static StridedTensor packed(const std::byte* data, FileDType dtype, std::vector<std::int64_t> shape);
};

/// Copies a block of such a matrix into packed rows of `column_count` elements each that are
/// `destination_stride` elements apart.
void copy_block(const StridedTensor& source, std::int64_t row_begin, std::int64_t row_count,
                std::int64_t column_begin, std::int64_t column_count, std::byte* destination,
                std::int64_t destination_stride);

/// The same for a block that is transposed on the way: its columns become rows.
void copy_block_transposed(const StridedTensor& source, std::int64_t row_begin, std::int64_t row_count,
                           std::int64_t column_begin, std::int64_t column_count, std::byte* destination,
                           std::int64_t destination_stride);

}  // namespace drover
