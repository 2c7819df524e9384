#include <algorithm>

#include "backend/cuda/kernels/eight_elements.cuh"
#include "core/dtype.h"

namespace drover::cuda {
namespace {

constexpr int elementwise_threads = 256;

// --------------------------------------------------------------------------------------------------------
// fill

/// A strided tensor's rows, placed by the first three of its dimensions.
struct StridedRows {
    std::int64_t size[Shape::max_rank], stride[Shape::max_rank];
    int outer_rank;

    __device__ std::int64_t offset(std::int64_t row) const {
        std::int64_t result = 0;
        for (int i = outer_rank - 1; i >= 0; --i) {
            result += row % size[i] * stride[i];
            row /= size[i];
        }
        return result;
    }
};

template <class Element>
__global__ void fill_packed(Element* x, std::int64_t count, Element value) {
    constexpr int per_pack = 16 / sizeof(Element);
    const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
    const bool aligned = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
    const std::int64_t packs = aligned ? count / per_pack : 0;
    Pack<Element> pack;
    for (Element& element : pack.element) element = value;
    for (std::int64_t i = thread; i < packs; i += step) store_pack(x + i * per_pack, pack);
    for (std::int64_t i = packs * per_pack + thread; i < count; i += step) x[i] = value;
}

template <class Element>
__global__ void fill_rows(Element* x, StridedRows rows, std::int64_t count, std::int64_t width,
                          Element value) {
    for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
        Element* const at = x + rows.offset(row);
        for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) at[i] = value;
    }
}

template <class Element>
void fill_with(const Launch& launch, const Tensor& x, Element value) {
    auto* data = static_cast<Element*>(x.raw());
    const std::int64_t most_blocks = std::int64_t{launch.gpu.multiprocessors} * 8;
    if (x.packed()) {
        const std::int64_t blocks =
            ceil_div(x.numel(), std::int64_t{elementwise_threads} * (16 / sizeof(Element)));
        fill_packed<<<std::min(blocks, most_blocks), elementwise_threads, 0, launch.stream>>>(data, x.numel(),
                                                                                              value);
    } else {
        StridedRows rows{};
        rows.outer_rank = x.rank() - 1;
        for (int i = 0; i < rows.outer_rank; ++i) {
            rows.size[i] = x.size(i);
            rows.stride[i] = x.stride(i);
        }
        const std::int64_t width = x.size(x.rank() - 1), count = x.numel() / width;
        fill_rows<<<std::min(count, most_blocks), elementwise_threads, 0, launch.stream>>>(data, rows, count,
                                                                                           width, value);
    }
    check_launch("fill");
}

// ------------------------------------------------------------------------------------------------ cast and
// add

/// Eights that a thread has in flight at once.
constexpr int elementwise_unrolled = 4;

/// Rows of `width` elements, at most one of which is not whole eights. Packed tensors are one row.
template <class From, class To, bool wide>
__global__ void cast_rows(const From* from, To* to, std::int64_t rows, std::int64_t width,
                          std::int64_t from_stride, std::int64_t to_stride) {
    const std::int64_t in_row = (width + 7) / 8, all = rows * in_row;
    const std::int64_t first =
        std::int64_t{blockIdx.x} * (elementwise_threads * elementwise_unrolled) + threadIdx.x;
    Eight<From> loaded[elementwise_unrolled];
    std::int64_t row[elementwise_unrolled], column[elementwise_unrolled];
#pragma unroll
    for (int i = 0; i < elementwise_unrolled; ++i) {
        const std::int64_t at = first + i * elementwise_threads;
        row[i] = rows == 1 ? 0 : at / in_row;
        column[i] = (at - row[i] * in_row) * 8;
        if (wide && at < all && column[i] + 8 <= width)
            loaded[i] = load_eight_streaming(from + row[i] * from_stride + column[i]);
    }
#pragma unroll
    for (int i = 0; i < elementwise_unrolled; ++i) {
        if (first + i * elementwise_threads >= all) return;
        const From* const here = from + row[i] * from_stride;
        To* const there = to + row[i] * to_stride;
        if (wide && column[i] + 8 <= width) {
            float values[8];
            to_floats(loaded[i], values);
            store_eight(there + column[i], to_eight<To>(values));
        } else {
            const std::int64_t end = column[i] + 8 < width ? column[i] + 8 : width;
            for (std::int64_t c = column[i]; c < end; ++c) there[c] = from_float<To>(to_float(here[c]));
        }
    }
}

template <class Into, class X, bool wide>
__global__ void add_packed(Into* into, const X* x, std::int64_t count) {
    const std::int64_t first =
        (std::int64_t{blockIdx.x} * (elementwise_threads * elementwise_unrolled) + threadIdx.x) * 8;
    constexpr std::int64_t step = elementwise_threads * 8;
    Eight<Into> before[elementwise_unrolled];
    Eight<X> added[elementwise_unrolled];
#pragma unroll
    for (int i = 0; i < elementwise_unrolled; ++i) {
        const std::int64_t at = first + i * step;
        if (wide && at + 8 <= count) {
            before[i] = load_eight(into + at);
            added[i] = load_eight_streaming(x + at);
        }
    }
#pragma unroll
    for (int i = 0; i < elementwise_unrolled; ++i) {
        const std::int64_t at = first + i * step;
        if (wide && at + 8 <= count) {
            float a[8], b[8];
            to_floats(before[i], a);
            to_floats(added[i], b);
#pragma unroll
            for (int e = 0; e < 8; ++e) a[e] += b[e];
            store_eight(into + at, to_eight<Into>(a));
        } else {
            const std::int64_t end = at + 8 < count ? at + 8 : count;
            for (std::int64_t e = at; e < end; ++e)
                into[e] = from_float<Into>(to_float(into[e]) + to_float(x[e]));
        }
    }
}

template <class T, bool wide>
__global__ void scale_rows(T* x, std::int64_t rows, std::int64_t width, std::int64_t stride, float factor) {
    const std::int64_t in_row = (width + 7) / 8,
                       at = std::int64_t{blockIdx.x} * elementwise_threads + threadIdx.x;
    if (at >= rows * in_row) return;
    const std::int64_t row = at / in_row, column = (at - row * in_row) * 8;
    T* const here = x + row * stride;
    if (wide) {
        float values[8];
        to_floats(load_eight(here + column), values);
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] *= factor;
        store_eight(here + column, to_eight<T>(values));
    } else {
        const std::int64_t end = column + 8 < width ? column + 8 : width;
        for (std::int64_t c = column; c < end; ++c) here[c] = from_float<T>(to_float(here[c]) * factor);
    }
}

/// A block turns a square of x around in shared memory, so that both matrices are read and written by rows.
constexpr int turned_side = 32, rows_at_once = elementwise_threads / turned_side;

template <class X, class Y>
__global__ void transpose_squares(const X* x, Y* y, std::int64_t rows, std::int64_t columns,
                                  std::int64_t x_stride, std::int64_t y_stride, std::int64_t squares_across,
                                  bool accumulate) {
    __shared__ float square[turned_side][turned_side + 1];
    const std::int64_t down = blockIdx.x / squares_across * turned_side,
                       across = blockIdx.x % squares_across * turned_side;
    const int lane = threadIdx.x % turned_side;
    for (int i = threadIdx.x / turned_side; i < turned_side; i += rows_at_once)
        if (down + i < rows && across + lane < columns)
            square[i][lane] = to_float(x[(down + i) * x_stride + across + lane]);
    __syncthreads();
    for (int i = threadIdx.x / turned_side; i < turned_side; i += rows_at_once)
        if (across + i < columns && down + lane < rows) {
            Y* const to = y + (across + i) * y_stride + down + lane;
            *to = from_float<Y>(accumulate ? to_float(*to) + square[lane][i] : square[lane][i]);
        }
}

/// Blocks that give each thread `elementwise_unrolled` of `eights`.
std::int64_t blocks_for(std::int64_t eights) {
    return ceil_div(eights, elementwise_threads * elementwise_unrolled);
}

bool aligned(const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0;
}

// ---------------------------------------------------------------------------------------------------------
// sum

constexpr std::int64_t summed_by_one_block = std::int64_t{1} << 16;

template <class T>
__device__ double sum_of_threads(const T* x, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += static_cast<double>(x[i]);
    return block_sum(sum);
}

template <class T>
__global__ void __launch_bounds__(1024) sum_slices(const T* x, std::int64_t count, double* slices) {
    const std::int64_t begin = blockIdx.x * summed_by_one_block;
    const double sum =
        sum_of_threads(x + begin, begin + summed_by_one_block < count ? summed_by_one_block : count - begin);
    if (threadIdx.x == 0) slices[blockIdx.x] = sum;
}

template <class T>
__global__ void __launch_bounds__(1024)
    sum_all(const T* x, std::int64_t count, double* out, bool accumulate, double scale) {
    const double sum = sum_of_threads(x, count);
    if (threadIdx.x == 0) *out = (accumulate ? *out : 0) + scale * sum;
}

}  // namespace

void fill(const Launch& launch, const Fill& op) {
    if (op.x.numel() == 0) return;
    const auto value = static_cast<float>(op.value);
    switch (op.x.dtype()) {
        case DType::f32:
            return fill_with(launch, op.x, value);
        case DType::f64:
            return fill_with(launch, op.x, op.value);
        case DType::bf16:
            return fill_with(launch, op.x, bf16(value).bits);
        case DType::f16:
            return fill_with(launch, op.x, f16(value).bits);
        case DType::i32:
            return fill_with(launch, op.x, static_cast<std::int32_t>(op.value));
        case DType::i64:
            return fill_with(launch, op.x, static_cast<std::int64_t>(op.value));
        case DType::u16:
            return fill_with(launch, op.x, static_cast<std::uint16_t>(op.value));
        case DType::u8:
            return fill_with(launch, op.x, static_cast<std::uint8_t>(op.value));
        case DType::f8:
            bug("kernel called with a dtype that it has no code for");
    }
}

void cast(const Launch& launch, const Cast& op) {
    if (op.to.numel() == 0) return;
    const bool flat = op.from.packed() && op.to.packed();
    const std::int64_t rows = flat ? 1 : op.to.size(0), width = flat ? op.to.numel() : op.to.size(1);
    const std::int64_t from_stride = flat ? 0 : op.from.stride(0), to_stride = flat ? 0 : op.to.stride(0);
    const bool wide = flat ? aligned(op.from) && aligned(op.to)
                           : eights_fit(op.from, width, from_stride) && eights_fit(op.to, width, to_stride);
    with_floating(op.from.dtype(), [&]<class From>() {
        with_floating(op.to.dtype(), [&]<class To>() {
            const auto kernel = wide ? cast_rows<From, To, true> : cast_rows<From, To, false>;
            kernel<<<blocks_for(rows * ceil_div(width, 8)), elementwise_threads, 0, launch.stream>>>(
                elements<From>(op.from), elements<To>(op.to), rows, width, from_stride, to_stride);
        });
    });
    check_launch("cast");
}

void scale(const Launch& launch, const Scale& op) {
    if (op.x.numel() == 0) return;
    const std::int64_t rows = op.x.size(0), width = op.x.size(1);
    with_floating(op.x.dtype(), [&]<class T>() {
        const auto kernel = eights_fit(op.x) ? scale_rows<T, true> : scale_rows<T, false>;
        kernel<<<ceil_div(rows * ceil_div(width, 8), elementwise_threads), elementwise_threads, 0,
                 launch.stream>>>(elements<T>(op.x), rows, width, op.x.stride(0), op.factor);
    });
    check_launch("scale");
}

void transpose(const Launch& launch, const Transpose& op) {
    if (op.x.numel() == 0) return;
    const std::int64_t rows = op.x.size(0), columns = op.x.size(1), across = ceil_div(columns, turned_side);
    with_floating(op.x.dtype(), [&]<class X>() {
        with_floating(op.y.dtype(), [&]<class Y>() {
            transpose_squares<<<ceil_div(rows, turned_side) * across, elementwise_threads, 0,
                                launch.stream>>>(elements<const X>(op.x), elements<Y>(op.y), rows, columns,
                                                 op.x.stride(0), op.y.stride(0), across, op.accumulate);
        });
    });
    check_launch("transpose");
}

void add(const Launch& launch, const Add& op) {
    const std::int64_t count = op.into.numel();
    if (count == 0) return;
    const bool wide = aligned(op.into) && aligned(op.x);
    with_floating(op.into.dtype(), [&]<class Into>() {
        with_floating(op.x.dtype(), [&]<class X>() {
            const auto kernel = wide ? add_packed<Into, X, true> : add_packed<Into, X, false>;
            kernel<<<blocks_for(ceil_div(count, 8)), elementwise_threads, 0, launch.stream>>>(
                elements<Into>(op.into), elements<X>(op.x), count);
        });
    });
    check_launch("add");
}

template <class T>
void sum_of(const Launch& launch, const Sum& op) {
    const auto* x = elements<const T>(op.x);
    auto* out = elements<double>(op.out);
    const std::int64_t count = op.x.size(0), slices = ceil_div(count, summed_by_one_block);
    if (slices <= 1) {
        sum_all<<<1, 1024, 0, launch.stream>>>(x, count, out, op.accumulate, op.scale);
    } else {
        auto* sums = launch.scratch.take_array<double>(static_cast<std::size_t>(slices));
        sum_slices<<<slices, 1024, 0, launch.stream>>>(x, count, sums);
        sum_all<<<1, 1024, 0, launch.stream>>>(sums, slices, out, op.accumulate, op.scale);
    }
    check_launch("sum");
}

void sum(const Launch& launch, const Sum& op) {
    if (op.x.dtype() == DType::f64)
        sum_of<double>(launch, op);
    else
        sum_of<float>(launch, op);
}

}  // namespace drover::cuda
