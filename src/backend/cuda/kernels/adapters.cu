#include <algorithm>

#include "backend/cuda/kernels/column_sums.cuh"
#include "backend/cuda/kernels/eight_elements.cuh"
#include "backend/cuda/kernels/leaf_noise.cuh"

namespace drover::cuda {
namespace {

constexpr int adapter_threads = 256;

/// Which eight elements of a matrix a thread works on; no row where there are none left.
struct EightOfMatrix {
    std::int64_t row, column, end;

    __device__ EightOfMatrix(std::int64_t rows, std::int64_t width) {
        const std::int64_t in_row = (width + 7) / 8,
                           at = std::int64_t{blockIdx.x} * adapter_threads + threadIdx.x;
        row = at / in_row;
        column = (at - row * in_row) * 8;
        end = row < rows ? (column + 8 < width ? column + 8 : width) : column;
    }
    __device__ bool empty() const { return end == column; }
};

unsigned blocks_for(const Tensor& matrix) {
    return static_cast<unsigned>(ceil_div(matrix.size(0) * ceil_div(matrix.size(1), 8), adapter_threads));
}

// -----------------------------------------------------------------------------------------------------------
// dropout

struct Dropping {
    const std::int32_t* number_of_row;  ///< may be null
    std::int64_t first_row, first_column, columns;
    std::uint32_t below;
    float factor;
    std::uint64_t seed, leaf;

    __device__ float on(float value, std::uint32_t word) const {
        return (word & 0xFFFFFFu) >= below ? value * factor : 0.f;
    }
};

template <class T, bool wide>
__global__ void drop(const T* x, T* y, std::int64_t rows, std::int64_t width, std::int64_t x_stride,
                     std::int64_t y_stride, const float* scalars, Dropping dropping) {
    const EightOfMatrix at(rows, width);
    if (at.empty()) return;
    // Elements are addressed by their numbers among all.
    LeafNoise place;
    place.leaf = dropping.leaf;
    place.first = 0;
    place.columns = place.row_distance = INT64_MAX;
    const LeafWords words(place, dropping.seed, scalars[StepScalar::step]);
    const std::int64_t row =
        dropping.first_row + (dropping.number_of_row ? dropping.number_of_row[at.row] : at.row);
    const std::int64_t first = row * dropping.columns + dropping.first_column + at.column;
    const T* const from = x + at.row * x_stride;
    T* const to = y + at.row * y_stride;
    if (wide) {
        float values[8];
        std::uint32_t drawn[8];
        to_floats(load_eight(from + at.column), values);
        words.draw_eight(first, drawn);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = dropping.on(values[e], drawn[e]);
        store_eight(to + at.column, to_eight<T>(values));
    } else {
        for (std::int64_t c = at.column; c < at.end; ++c)
            to[c] = from_float<T>(dropping.on(to_float(from[c]), words.draw_one(first + (c - at.column))));
    }
}

// -----------------------------------------------------------------------------------------------------------
// magnitudes

/// One block per row.
template <class T>
__global__ void row_squares(const T* weight, std::int64_t width, std::int64_t weight_stride, const T* b,
                            std::int64_t b_stride, const float* products, std::int64_t products_stride,
                            const float* gram, std::int64_t rank, float scale, float* squares) {
    const std::int64_t row = blockIdx.x;
    const T* const w = weight + row * weight_stride;
    const T* const own_b = b + row * b_stride;
    float sum = 0;
    for (std::int64_t i = threadIdx.x; i < width; i += adapter_threads) {
        const float value = to_float(w[i]);
        sum += value * value;
    }
    for (std::int64_t i = threadIdx.x; i < rank; i += adapter_threads)
        sum += 2 * scale * to_float(own_b[i]) * products[row * products_stride + i];
    for (std::int64_t i = threadIdx.x; i < rank * rank; i += adapter_threads)
        sum += scale * scale * gram[i] * to_float(own_b[i / rank]) * to_float(own_b[i % rank]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) squares[row] = sum;
}

template <class T>
__global__ void divide_by_lengths(const T* magnitudes, const float* squares, float* factors,
                                  std::int64_t count) {
    const std::int64_t i = std::int64_t{blockIdx.x} * adapter_threads + threadIdx.x;
    if (i < count) factors[i] = to_float(magnitudes[i]) / sqrtf(squares[i]);
}

template <class T, class U, bool wide>
__global__ void scale_by_column(const T* x, T* y, std::int64_t rows, std::int64_t width,
                                std::int64_t x_stride, std::int64_t y_stride, const float* factors,
                                const U* bias) {
    const EightOfMatrix at(rows, width);
    if (at.empty()) return;
    const T* const from = x + at.row * x_stride;
    T* const to = y + at.row * y_stride;
    const auto result = [&](float value, std::int64_t c) {
        value *= factors[c];
        return bias ? value + to_float(bias[c]) : value;
    };
    if (wide) {
        float values[8];
        to_floats(load_eight(from + at.column), values);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = result(values[e], at.column + e);
        store_eight(to + at.column, to_eight<T>(values));
    } else {
        for (std::int64_t c = at.column; c < at.end; ++c) to[c] = from_float<T>(result(to_float(from[c]), c));
    }
}

/// Rows that one block of the gradient's first kernel adds up.
constexpr std::int64_t rows_of_slice = 64;

/// Neighbouring threads have neighbouring columns.
template <class T, class U>
__global__ void sum_products(const T* dy, const T* y, std::int64_t rows, std::int64_t width,
                             std::int64_t dy_stride, std::int64_t y_stride, const U* bias,
                             const T* magnitudes, float* slices) {
    const std::int64_t column = std::int64_t{blockIdx.y} * adapter_threads + threadIdx.x;
    if (column >= width) return;
    const std::int64_t begin = blockIdx.x * rows_of_slice;
    const std::int64_t end = begin + rows_of_slice < rows ? begin + rows_of_slice : rows;
    const float added = bias ? to_float(bias[column]) : 0.f, length = to_float(magnitudes[column]);
    float sum = 0;
    for (std::int64_t row = begin; row < end; ++row)
        sum += to_float(dy[row * dy_stride + column]) * (to_float(y[row * y_stride + column]) - added);
    slices[blockIdx.x * width + column] = length == 0 ? 0.f : sum / length;
}

/// Calls body<T, U>() with the types of two operands, of which the second is the first's or f32, or absent.
template <class Body>
void with_types(const Tensor& first, const Tensor& second, const Body& body) {
    with_floating(first.dtype(), [&]<class T>() {
        if (!second || second.dtype() == DType::f32) return body.template operator()<T, float>();
        if constexpr (sizeof(T) == 2) return body.template operator()<T, T>();
    });
}

}  // namespace

void drop_elements(const Launch& launch, const DropElements& op) {
    if (op.x.numel() == 0) return;
    const Dropping dropping{.number_of_row = elements<const std::int32_t>(op.number_of_row),
                            .first_row = op.first_row,
                            .first_column = op.first_column,
                            .columns = op.columns,
                            .below = op.dropped_below(),
                            .factor = static_cast<float>(1 / (1 - op.rate)),
                            .seed = op.seed,
                            .leaf = op.leaf};
    with_floating(op.x.dtype(), [&]<class T>() {
        const auto kernel = eights_fit(op.x) && eights_fit(op.y) ? drop<T, true> : drop<T, false>;
        kernel<<<blocks_for(op.x), adapter_threads, 0, launch.stream>>>(
            elements<const T>(op.x), elements<T>(op.y), op.x.size(0), op.x.size(1), op.x.stride(0),
            op.y.stride(0), elements<const float>(op.scalars), dropping);
    });
    check_launch("drop_elements");
}

void adapted_squares(const Launch& launch, const AdaptedSquares& op) {
    if (op.weight.size(0) == 0) return;
    with_floating(op.weight.dtype(), [&]<class T>() {
        row_squares<<<static_cast<unsigned>(op.weight.size(0)), adapter_threads, 0, launch.stream>>>(
            elements<const T>(op.weight), op.weight.size(1), op.weight.stride(0), elements<const T>(op.b),
            op.b.stride(0), elements<const float>(op.products), op.products.stride(0),
            elements<const float>(op.gram), op.b.size(1), op.scale, elements<float>(op.squares));
    });
    check_launch("adapted_squares");
}

void magnitude_factors(const Launch& launch, const MagnitudeFactors& op) {
    const std::int64_t count = op.magnitudes.size(0);
    if (count == 0) return;
    with_floating(op.magnitudes.dtype(), [&]<class T>() {
        divide_by_lengths<<<static_cast<unsigned>(ceil_div(count, adapter_threads)), adapter_threads, 0,
                            launch.stream>>>(elements<const T>(op.magnitudes),
                                             elements<const float>(op.squares), elements<float>(op.factors),
                                             count);
    });
    check_launch("magnitude_factors");
}

void scale_columns(const Launch& launch, const ScaleColumns& op) {
    if (op.x.numel() == 0) return;
    const bool wide = eights_fit(op.x) && eights_fit(op.y);
    with_types(op.x, op.bias, [&]<class T, class U>() {
        const auto kernel = wide ? scale_by_column<T, U, true> : scale_by_column<T, U, false>;
        kernel<<<blocks_for(op.x), adapter_threads, 0, launch.stream>>>(
            elements<const T>(op.x), elements<T>(op.y), op.x.size(0), op.x.size(1), op.x.stride(0),
            op.y.stride(0), elements<const float>(op.factors), elements<const U>(op.bias));
    });
    check_launch("scale_columns");
}

void magnitude_gradient(const Launch& launch, const MagnitudeGradient& op) {
    const std::int64_t rows = op.dy.size(0), width = op.dy.size(1), slices = ceil_div(rows, rows_of_slice);
    if (width == 0) return;
    auto* sums =
        launch.scratch.take_array<float>(static_cast<std::size_t>(std::max<std::int64_t>(slices, 1) * width));
    if (slices > 0)
        with_types(op.dy, op.bias, [&]<class T, class U>() {
            const dim3 blocks(static_cast<unsigned>(slices),
                              static_cast<unsigned>(ceil_div(width, adapter_threads)));
            sum_products<T, U><<<blocks, adapter_threads, 0, launch.stream>>>(
                elements<const T>(op.dy), elements<const T>(op.y), rows, width, op.dy.stride(0),
                op.y.stride(0), elements<const U>(op.bias), elements<const T>(op.magnitudes), sums);
        });
    check_launch("magnitude_gradient");
    sum_slices_of_columns(launch, sums, slices, op.dmagnitudes, op.accumulate);
}

}  // namespace drover::cuda
