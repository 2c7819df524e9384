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
    std::int64_t rows, width, stride, padded;  ///< of each group
    const std::int32_t* offsets;               ///< of rows that are sorted by expert
    int experts;

    /// Of this block's group, which is its third index.
    __device__ std::int64_t first_element() const { return blockIdx.z * rows * width; }
    __device__ std::int64_t first_of_transposed() const { return blockIdx.z * width * padded; }
};

// A block quantises a square of 128 × 128 elements. A thread has 8 × 8 of them: it transposes their bytes in
// registers and puts them into shared memory, from which rows of the transpose are written whole.

constexpr int square = 128;
constexpr int square_threads = 256;

/// Rows of x that make a square of the transpose.
struct SquareRows {
    std::int64_t first;
    int count;  ///< at most a square's
};

/// Those of the expert that has the index-th square of the transpose, where each begins a new one. Every warp
/// must call it as a whole.
__device__ SquareRows rows_of_expert(const std::int32_t* offsets, int experts, int index) {
    static_assert(square == expert_alignment);
    constexpr std::uint32_t all = 0xFFFFFFFFu;
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int first = 0; first < experts; first += 32) {
        const int expert = first + lane;
        const int begin = expert < experts ? offsets[expert] : 0;
        const int rows = expert < experts ? offsets[expert + 1] - begin : 0;
        const int squares = (rows + square - 1) / square;
        const int end = before + warp_sum_up_to_here(squares);
        const std::uint32_t found = __ballot_sync(all, index < end && index >= end - squares);
        if (found != 0) {
            const int owner = __ffs(static_cast<int>(found)) - 1, skipped = (index - end + squares) * square;
            return {__shfl_sync(all, begin + skipped, owner),
                    min(square, __shfl_sync(all, rows - skipped, owner))};
        }
        before = __shfl_sync(all, end, 31);
    }
    return {0, -1};
}

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

/// Needs aligned eights. `sorted`: the rows are sorted by expert.
template <class T, bool sorted>
__global__ void __launch_bounds__(square_threads) quantise_square(const T* x, const Quantised op) {
    // [column][rows in eights]. The eights of a column are exchanged so that neither writing nor reading has
    // two threads on one bank.
    __shared__ uint2 turned[square][square / 8];
    const int column_eight = threadIdx.x % 16, row = threadIdx.x / 16 * 8, row_eight = threadIdx.x / 16;
    const std::int64_t first_column = std::int64_t{blockIdx.x} * square,
                       first_across = std::int64_t{blockIdx.y} * square;
    const std::int64_t column = first_column + column_eight * 8;
    wait_for_earlier_kernels();
    const Fp8Factor fp8(op.maximum);
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) *op.scale = fp8.scale;
    SquareRows rows{first_across, static_cast<int>(min(std::int64_t{square}, op.rows - first_across))};
    if constexpr (sorted) {
        rows = rows_of_expert(op.offsets, op.experts, static_cast<int>(blockIdx.y));
        if (rows.count < 0) return;
    }

    const T* const from = x + blockIdx.z * op.rows * op.stride + (rows.first + row) * op.stride + column;
    Eight<T> loaded[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (row + i < rows.count && column < op.width) loaded[i] = load_eight_streaming(from + i * op.stride);
    uint2 bytes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        bytes[i] = make_uint2(0, 0);
        if (row + i >= rows.count || column >= op.width) continue;
        float values[8];
        to_floats(loaded[i], values);
        bytes[i] = to_fp8(values, fp8.factor);
        if (op.y)
            *reinterpret_cast<uint2*>(op.y + op.first_element() + (rows.first + row + i) * op.width +
                                      column) = bytes[i];
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
    if (first_across + eight * 8 >= op.padded) return;
    std::uint8_t* const to =
        op.transposed + op.first_of_transposed() + first_column * op.padded + first_across + eight * 8;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int at = i * 16 + threadIdx.x / 16;
        if (first_column + at >= op.width) break;
        *reinterpret_cast<uint2*>(to + at * op.padded) = turned[at][eight ^ at / 8];
    }
}

/// The same for rows of any width and alignment, one element per thread.
template <class T, bool sorted>
__global__ void __launch_bounds__(threads_of_groups) quantise_any(const T* x, const Quantised op) {
    const Fp8Factor fp8(op.maximum);
    const std::int64_t across = blockIdx.y;
    const std::int64_t column = std::int64_t{blockIdx.x} * threads_of_groups + threadIdx.x;
    if (across == 0 && column == 0 && blockIdx.z == 0) *op.scale = fp8.scale;
    std::int64_t row = across;
    bool in_rows = across < op.rows;
    if constexpr (sorted) {
        const SquareRows rows = rows_of_expert(op.offsets, op.experts, static_cast<int>(blockIdx.y) / square);
        if (rows.count < 0) return;
        row = rows.first + across % square;
        in_rows = across % square < rows.count;
    }
    if (column >= op.width) return;
    std::uint8_t byte = 0;
    if (in_rows)
        byte =
            __nv_cvt_float_to_fp8(to_float(x[(blockIdx.z * op.rows + row) * op.stride + column]) * fp8.factor,
                                  __NV_SATFINITE, __NV_E4M3);
    if (op.y && in_rows) op.y[op.first_element() + row * op.width + column] = byte;
    if (op.transposed) op.transposed[op.first_of_transposed() + column * op.padded + across] = byte;
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
        std::min(groups.blocks(groups_in_flight), std::int64_t{launch.gpu.multiprocessors} * 8);
    with_floating(op.x.dtype(), [&]<class T>() {
        launch_early("absolute_maximum", launch, wide ? find_maximum<T, true> : find_maximum<T, false>,
                     static_cast<unsigned>(blocks), threads_of_groups, 0, RowMatrix<T>(op.x),
                     elements<float>(op.maximum), groups);
    });
}

void quantise(const Launch& launch, const Quantise& op) {
    const std::int64_t rows = op.x.size(0) / op.groups, width = op.x.size(1);
    const bool sorted = op.offsets && op.transposed;
    const Quantised quantised{.y = elements<std::uint8_t>(op.y),
                              .transposed = elements<std::uint8_t>(op.transposed),
                              .maximum = elements<const float>(op.maximum),
                              .scale = elements<float>(op.scale),
                              .rows = rows,
                              .width = width,
                              .stride = op.x.stride(0),
                              .padded = op.transposed ? op.transposed.size(1) : rows,
                              .offsets = elements<const std::int32_t>(op.offsets),
                              .experts = sorted ? static_cast<int>(op.offsets.size(0) - 1) : 0};
    if (quantised.padded * width == 0) {
        write_scale<<<1, 1, 0, launch.stream>>>(quantised.maximum, quantised.scale);
        return check_launch("quantise");
    }
    const auto aligned = [](const void* address) {
        return reinterpret_cast<std::uintptr_t>(address) % 8 == 0;
    };
    const bool wide = eights_fit(op.x) && aligned(quantised.y) && aligned(quantised.transposed);
    const auto blocks = [&](int columns, int across) {
        return dim3(static_cast<unsigned>(ceil_div(width, columns)),
                    static_cast<unsigned>(ceil_div(quantised.padded, across)),
                    static_cast<unsigned>(op.groups));
    };
    with_floating(op.x.dtype(), [&]<class T>() {
        if (wide) {
            launch_early("quantise", launch, sorted ? quantise_square<T, true> : quantise_square<T, false>,
                         blocks(square, square), square_threads, 0, elements<const T>(op.x), quantised);
        } else {
            auto* const kernel = sorted ? quantise_any<T, true> : quantise_any<T, false>;
            kernel<<<blocks(threads_of_groups, 1), threads_of_groups, 0, launch.stream>>>(
                elements<const T>(op.x), quantised);
            check_launch("quantise");
        }
    });
}

}  // namespace drover::cuda
