#include "io/strided_tensor.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/range.h"

namespace drover {
namespace {

/// Elements `from_stride` and `to_stride` bytes apart; the loop is compiled for each size of an element.
template <std::size_t size>
void copy_elements(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
                   std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, size);
}

void copy_elements(std::size_t size, const std::byte* from, std::int64_t from_stride, std::byte* to,
                   std::int64_t to_stride, std::int64_t count) {
    switch (size) {
        case 1:
            return copy_elements<1>(from, from_stride, to, to_stride, count);
        case 2:
            return copy_elements<2>(from, from_stride, to, to_stride, count);
        case 4:
            return copy_elements<4>(from, from_stride, to, to_stride, count);
        case 8:
            return copy_elements<8>(from, from_stride, to, to_stride, count);
        default:
            bug("elements of another size than 1, 2, 4 or 8 bytes are copied");
    }
}

std::size_t element_bytes(FileDType dtype) {
    require(bits_of(dtype) % 8 == 0, "elements of less than a byte are copied");
    return static_cast<std::size_t>(bits_of(dtype) / 8);
}

/// Rows and columns of a tile that stays in the cache while it is transposed.
constexpr std::int64_t tile = 64;

/// Copies a block to where its rows are `row_step` elements apart and its columns `column_step`.
void copy_in_tiles(const StridedTensor& source, const Range& rows, const Range& columns,
                   std::byte* destination, std::int64_t row_step, std::int64_t column_step) {
    const std::size_t size = element_bytes(source.dtype);
    const auto bytes = [&](std::int64_t elements) { return elements * static_cast<std::int64_t>(size); };
    const std::int64_t stride = source.column_stride();
    for (std::int64_t column = 0; column < columns.count; column += tile)
        for (std::int64_t row = 0; row < rows.count; ++row)
            copy_elements(size, source.row(rows.begin + row) + bytes((columns.begin + column) * stride),
                          bytes(stride), destination + bytes(row * row_step + column * column_step),
                          bytes(column_step), std::min(tile, columns.count - column));
}

}  // namespace

std::int64_t StridedTensor::rows() const {
    std::int64_t count = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
    return count;
}

const std::byte* StridedTensor::row(std::int64_t index) const {
    std::int64_t offset = 0;
    for (std::size_t i = shape.size(); i-- > 1;) {
        offset += index % shape[i - 1] * strides[i - 1];
        index /= shape[i - 1];
    }
    return data + offset * static_cast<std::int64_t>(element_bytes(dtype));
}

StridedTensor StridedTensor::rows_apart(std::int64_t begin, std::int64_t step) const {
    require(shape.size() == 2, "rows of a matrix are taken apart");
    StridedTensor rows = *this;
    rows.data = row(begin);
    rows.shape[0] = (shape[0] - begin + step - 1) / step;
    rows.strides[0] *= step;
    return rows;
}

StridedTensor StridedTensor::packed(const std::byte* data, FileDType dtype, std::vector<std::int64_t> shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    return {.data = data, .dtype = dtype, .shape = std::move(shape), .strides = std::move(strides)};
}

void copy_block(const StridedTensor& source, std::int64_t row_begin, std::int64_t row_count,
                std::int64_t column_begin, std::int64_t column_count, std::byte* destination,
                std::int64_t destination_stride) {
    if (source.column_stride() != 1)  // neighbours in the file are in different rows
        return copy_in_tiles(source, {row_begin, row_count}, {column_begin, column_count}, destination,
                             destination_stride, 1);
    const auto size = static_cast<std::int64_t>(element_bytes(source.dtype));
    for (std::int64_t row = 0; row < row_count; ++row)
        std::memcpy(destination + row * destination_stride * size,
                    source.row(row_begin + row) + column_begin * size,
                    static_cast<std::size_t>(column_count * size));
}

void copy_block_transposed(const StridedTensor& source, std::int64_t row_begin, std::int64_t row_count,
                           std::int64_t column_begin, std::int64_t column_count, std::byte* destination,
                           std::int64_t destination_stride) {
    copy_in_tiles(source, {row_begin, row_count}, {column_begin, column_count}, destination, 1,
                  destination_stride);
}

}  // namespace drover
