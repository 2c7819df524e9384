#include "backend/cuda/kernels/early_launch.cuh"
#include "backend/cuda/kernels/fp8.cuh"
#include "backend/cuda/kernels/row_groups.cuh"

namespace drover::cuda {
namespace {

/// Groups of elements that a thread has in flight at once.
constexpr int groups_in_flight = 4;

template <class T, bool wide>
__global__ void __launch_bounds__(threads_of_groups)
    find_maximum(const RowMatrix<T> x, float* maximum, const RowGroups groups) {
    wait_for_earlier_kernels();
    std::uint32_t most = 0;
    const std::uint32_t step = gridDim.x * threads_of_groups * groups_in_flight;
    for (std::uint32_t first = blockIdx.x * threads_of_groups * groups_in_flight; first < groups.count;
         first += step) {
        Group<T, wide> loaded[groups_in_flight];
#pragma unroll
        for (int i = 0; i < groups_in_flight; ++i) {
            const std::uint32_t group = first + i * threads_of_groups + threadIdx.x;
            if (group < groups.count) loaded[i] = load_group<T, wide>(x.at(groups.place<wide>(group)));
        }
#pragma unroll
        for (int i = 0; i < groups_in_flight; ++i) {
            if (first + i * threads_of_groups + threadIdx.x >= groups.count) break;
            float values[group_size<wide>];
            group_to_floats(loaded[i], values);
#pragma unroll
            for (int e = 0; e < group_size<wide>; ++e) most = max(most, magnitude_bits(values[e]));
        }
    }
    raise_maximum(maximum, most);
}

struct Quantised {
    std::uint8_t* y;           ///< [rows,width]; may be null
    std::uint8_t* transposed;  ///< [width,padded]; may be null
    const float* maximum;
    float* scale;
    std::int64_t rows, width, stride, padded;
};

// A block quantises a square of 128 × 128 elements. A thread has 8 × 8 of them: it transposes their bytes in
// registers and puts them into shared memory, from which rows of the transpose are written whole.

constexpr int square = 128;
constexpr int square_threads = 256;

/// Columns i of a 4 × 4 matrix of bytes, given by its rows.
__device__ inline void transpose_bytes(std::uint32_t (&words)[4]) {
    const std::uint32_t t0 = __byte_perm(words[0], words[1], 0x5140),
                        t1 = __byte_perm(words[2], words[3], 0x5140),
                        t2 = __byte_perm(words[0], words[1], 0x7362),
                        t3 = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(t0, t1, 0x5410);
    words[1] = __byte_perm(t0, t1, 0x7632);
    words[2] = __byte_perm(t2, t3, 0x5410);
    words[3] = __byte_perm(t2, t3, 0x7632);
}

/// Needs aligned eights.
template <class T>
__global__ void __launch_bounds__(square_threads) quantise_square(const T* x, const Quantised op) {
    // [column][rows in eights]. The eights of a column are exchanged so that neither writing nor reading has
    // two threads on one bank.
    __shared__ uint2 turned[square][square / 8];
    const int column_eight = threadIdx.x % 16, row_eight = threadIdx.x / 16;
    const std::int64_t first_column = std::int64_t{blockIdx.x} * square,
                       first_row = std::int64_t{blockIdx.y} * square;
    const std::int64_t column = first_column + column_eight * 8, row = first_row + row_eight * 8;
    wait_for_earlier_kernels();
    const Fp8Factor fp8(op.maximum);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *op.scale = fp8.scale;

    Eight<T> loaded[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (row + i < op.rows && column < op.width)
            loaded[i] = load_eight_streaming(x + (row + i) * op.stride + column);
    uint2 bytes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        bytes[i] = make_uint2(0, 0);
        if (row + i >= op.rows || column >= op.width) continue;
        float values[8];
        to_floats(loaded[i], values);
        bytes[i] = to_fp8(values, fp8.factor);
        if (op.y) *reinterpret_cast<uint2*>(op.y + (row + i) * op.width + column) = bytes[i];
    }
    if (!op.transposed) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        std::uint32_t upper[4], lower[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            upper[i] = half ? bytes[i].y : bytes[i].x;
            lower[i] = half ? bytes[4 + i].y : bytes[4 + i].x;
        }
        transpose_bytes(upper);
        transpose_bytes(lower);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            turned[column_eight * 8 + half * 4 + i][row_eight ^ column_eight] =
                make_uint2(upper[i], lower[i]);
    }
    __syncthreads();
    const int eight = threadIdx.x % 16;
    if (first_row + eight * 8 >= op.padded) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int at = i * 16 + threadIdx.x / 16;
        if (first_column + at >= op.width) break;
        *reinterpret_cast<uint2*>(op.transposed + (first_column + at) * op.padded + first_row + eight * 8) =
            turned[at][eight ^ at / 8];
    }
}

/// The same for rows of any width and alignment, one element per thread.
template <class T>
__global__ void __launch_bounds__(threads_of_groups) quantise_any(const T* x, const Quantised op) {
    const Fp8Factor fp8(op.maximum);
    const std::int64_t row = blockIdx.y;
    const std::int64_t column = std::int64_t{blockIdx.x} * threads_of_groups + threadIdx.x;
    if (row == 0 && column == 0) *op.scale = fp8.scale;
    if (column >= op.width) return;
    std::uint8_t byte = 0;
    if (row < op.rows)
        byte = __nv_cvt_float_to_fp8(to_float(x[row * op.stride + column]) * fp8.factor, __NV_SATFINITE,
                                     __NV_E4M3);
    if (op.y && row < op.rows) op.y[row * op.width + column] = byte;
    if (op.transposed) op.transposed[column * op.padded + row] = byte;
}

__global__ void write_scale(const float* maximum, float* scale) {
    *scale = Fp8Factor(maximum).scale;
}

}  // namespace

void absolute_maximum(const Launch& launch, const AbsoluteMaximum& op) {
    const bool packed = op.x.packed();
    const std::int64_t rows = packed ? 1 : op.x.size(0), width = packed ? op.x.numel() : op.x.size(1);
    if (rows * width == 0) return;
    const bool wide = packed ? eights_fit(op.x, width, width) : eights_fit(op.x);
    const RowGroups groups(rows, width, wide);
    const std::int64_t blocks =
        std::min(groups.blocks(groups_in_flight), std::int64_t{launch.multiprocessors} * 8);
    with_floating(op.x.dtype(), [&]<class T>() {
        launch_early("absolute_maximum", wide ? find_maximum<T, true> : find_maximum<T, false>,
                     static_cast<unsigned>(blocks), threads_of_groups, 0, launch.stream, RowMatrix<T>(op.x),
                     elements<float>(op.maximum), groups);
    });
}

void quantise(const Launch& launch, const Quantise& op) {
    const std::int64_t rows = op.x.size(0), width = op.x.size(1);
    const Quantised quantised{.y = elements<std::uint8_t>(op.y),
                              .transposed = elements<std::uint8_t>(op.transposed),
                              .maximum = elements<const float>(op.maximum),
                              .scale = elements<float>(op.scale),
                              .rows = rows,
                              .width = width,
                              .stride = op.x.stride(0),
                              .padded = op.transposed ? op.transposed.size(1) : rows};
    if (quantised.padded * width == 0) {
        write_scale<<<1, 1, 0, launch.stream>>>(quantised.maximum, quantised.scale);
        return check_launch("quantise");
    }
    const auto aligned = [](const void* address) {
        return reinterpret_cast<std::uintptr_t>(address) % 8 == 0;
    };
    const bool wide = eights_fit(op.x) && aligned(quantised.y) && aligned(quantised.transposed);
    with_floating(op.x.dtype(), [&]<class T>() {
        if (wide) {
            const dim3 blocks(static_cast<unsigned>(ceil_div(width, square)),
                              static_cast<unsigned>(ceil_div(quantised.padded, square)));
            launch_early("quantise", quantise_square<T>, blocks, square_threads, 0, launch.stream,
                         elements<const T>(op.x), quantised);
        } else {
            const dim3 blocks(static_cast<unsigned>(ceil_div(width, threads_of_groups)),
                              static_cast<unsigned>(quantised.padded));
            quantise_any<<<blocks, threads_of_groups, 0, launch.stream>>>(elements<const T>(op.x), quantised);
            check_launch("quantise");
        }
    });
}

}  // namespace drover::cuda
