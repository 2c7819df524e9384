#include <algorithm>
#include <array>
#include <cstring>

#include "core/convert.h"
#include "io/model_folder.h"

namespace drover {
namespace {

/// `runs` stretches of `length` consecutive elements each, `stride` elements apart.
struct Runs {
    std::byte* data;
    DType dtype;
    std::int64_t stride;
};

/// Typed access to misaligned data is undefined, so such data goes through a small aligned buffer.
void convert_run(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t count) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(from) % size_of(from_dtype) == 0;
    if (aligned || from_dtype == to_dtype) return convert_elements(from, from_dtype, to, to_dtype, count);
    constexpr std::int64_t buffer_elements = 1024;
    alignas(8) std::array<std::byte, buffer_elements * 8> buffer;
    for (std::int64_t begin = 0; begin < count; begin += buffer_elements) {
        const std::int64_t part = std::min(buffer_elements, count - begin);
        const auto offset = static_cast<std::size_t>(begin);
        std::memcpy(buffer.data(), from + offset * size_of(from_dtype),
                    static_cast<std::size_t>(part) * size_of(from_dtype));
        convert_elements(buffer.data(), from_dtype, to + offset * size_of(to_dtype), to_dtype, part);
    }
}

void convert_runs(const Runs& from, const Runs& to, std::int64_t runs, std::int64_t length) {
    require(from.dtype == to.dtype || (is_floating(from.dtype) && is_floating(to.dtype)),
            "conversion on load between types that are not floating");
    if (runs == 0 || length == 0) return;
    if (from.stride == length && to.stride == length) {
        length *= runs;
        runs = 1;
    }
    // Large enough to be worth a thread, small enough to give every thread some of a small tensor.
    constexpr std::int64_t piece = 1 << 15;
    const std::int64_t pieces = (length + piece - 1) / piece;
#pragma omp parallel for schedule(static) if (runs * length > piece)
    for (std::int64_t index = 0; index < runs * pieces; ++index) {
        const std::int64_t run = index / pieces, begin = index % pieces * piece;
        const auto from_offset = static_cast<std::size_t>(run * from.stride + begin) * size_of(from.dtype);
        const auto to_offset = static_cast<std::size_t>(run * to.stride + begin) * size_of(to.dtype);
        convert_run(from.data + from_offset, from.dtype, to.data + to_offset, to.dtype,
                    std::min(piece, length - begin));
    }
}

Runs runs_of(const Tensor& tensor, std::int64_t stride) {
    return {static_cast<std::byte*>(tensor.raw()), tensor.dtype(), stride};
}

}  // namespace

void read_rows(const Tensor& source, std::int64_t row_begin, std::int64_t row_count,
               const Tensor& destination) {
    const Tensor rows = source.rows(row_begin, row_count);
    require(rows.packed() && rows.device() == Device::cpu, "rows are read from a packed CPU tensor");
    require(destination.numel() == rows.numel() && destination.device() == Device::cpu,
            "rows are read into a CPU tensor of as many elements");
    const std::int64_t length = row_count == 0 ? 0 : rows.numel() / row_count;
    if (destination.packed())
        return convert_runs(runs_of(rows, length), runs_of(destination, length), row_count, length);
    require(destination.rank() == 2 && destination.size(0) == row_count,
            "rows are read into a packed tensor or a matrix of as many rows");
    convert_runs(runs_of(rows, length), runs_of(destination, destination.stride(0)), row_count, length);
}

void read_block(const Tensor& source, std::int64_t row_begin, std::int64_t row_count,
                std::int64_t column_begin, std::int64_t column_count, const Tensor& destination) {
    require(source.rank() == 2 && source.device() == Device::cpu, "blocks are read from a CPU matrix");
    require(destination.shape() == Shape{row_count, column_count} && destination.device() == Device::cpu,
            "a block is read into a CPU matrix of its size");
    const Tensor block = source.rows(row_begin, row_count).columns(column_begin, column_count);
    convert_runs(runs_of(block, block.stride(0)), runs_of(destination, destination.stride(0)), row_count,
                 column_count);
}

}  // namespace drover
