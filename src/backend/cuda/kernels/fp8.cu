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
    const float* maximum = nullptr;
    float* scale = nullptr;
    std::int64_t rows, width, stride, padded;  ///< of each group
    const std::int32_t* offsets;               ///< of rows that are sorted by expert
    int experts;

    /// Of blocks, instead of `scale`: their scales and how many there are in a row of them.
    float *block_scales = nullptr, *transposed_scales = nullptr;
    std::int64_t scale_pitch = 0, transposed_pitch = 0;

    /// A kernel's blocks, which have so many elements each.
    dim3 blocks(std::int64_t groups, int columns, int across) const {
        return dim3(static_cast<unsigned>(ceil_div(width, columns)),
                    static_cast<unsigned>(ceil_div(padded, across)), static_cast<unsigned>(groups));
    }
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

/// Bytes on their way to the transpose: [column][rows in eights]. The eights of a column are exchanged so
/// that neither writing nor reading has two threads on one bank.
using TurnedSquare = uint2[square][square / 8];

/// Writes a square's columns as rows of the transpose. Every thread of the block has 8 × 8 bytes of it.
__device__ void write_transposed(TurnedSquare& turned, const uint2 (&bytes)[8], const Quantised& op) {
    const int column_eight = threadIdx.x % 16, row_eight = threadIdx.x / 16;
    const std::int64_t first_column = std::int64_t{blockIdx.x} * square,
                       first_across = std::int64_t{blockIdx.y} * square;
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

/// Needs aligned eights. `sorted`: the rows are sorted by expert.
template <class T, bool sorted>
__global__ void __launch_bounds__(square_threads) quantise_square(const T* x, const Quantised op) {
    __shared__ TurnedSquare turned;
    const int row = threadIdx.x / 16 * 8;
    const std::int64_t first_across = std::int64_t{blockIdx.y} * square;
    const std::int64_t column = std::int64_t{blockIdx.x} * square + threadIdx.x % 16 * 8;
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
    if (op.transposed) write_transposed(turned, bytes, op);
}

/// Scales for blocks: of each row of the square for y and each column for the transpose, or of the whole.
template <class T, bool sorted, bool by_rows>
__global__ void __launch_bounds__(square_threads) quantise_square_blocks(const T* x, const Quantised op) {
    __shared__ TurnedSquare turned;
    __shared__ std::uint32_t most_of[square];  // bits of the columns' largest magnitudes, or of the square's
    constexpr std::uint32_t all = 0xFFFFFFFFu;
    const int row = threadIdx.x / 16 * 8, column_eight = threadIdx.x % 16;
    const std::int64_t first_across = std::int64_t{blockIdx.y} * square,
                       first_column = std::int64_t{blockIdx.x} * square;
    const std::int64_t column = first_column + column_eight * 8;
    if (threadIdx.x < square) most_of[threadIdx.x] = 0;
    wait_for_earlier_kernels();
    SquareRows rows{first_across, static_cast<int>(min(std::int64_t{square}, op.rows - first_across))};
    if constexpr (sorted) {
        rows = rows_of_expert(op.offsets, op.experts, static_cast<int>(blockIdx.y));
        if (rows.count < 0) return;
    }

    const T* const from = x + blockIdx.z * op.rows * op.stride + (rows.first + row) * op.stride + column;
    const auto is_there = [&](int i) { return row + i < rows.count && column < op.width; };
    Eight<T> loaded[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (is_there(i)) loaded[i] = load_eight_streaming(from + i * op.stride);
    std::uint32_t of_row[8] = {}, of_column[8] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (!is_there(i)) continue;
        float values[8];
        to_floats(loaded[i], values);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            of_row[i] = max(of_row[i], magnitude_bits(values[e]));
            of_column[e] = max(of_column[e], magnitude_bits(values[e]));
        }
    }
    __syncthreads();
    if constexpr (by_rows) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
            for (int lanes = 8; lanes > 0; lanes /= 2)
                of_row[i] = max(of_row[i], __shfl_xor_sync(all, of_row[i], lanes));
            atomicMax(&most_of[column_eight * 8 + i], of_column[i]);
        }
    } else {
        std::uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) most = max(most, of_row[i]);
        most = __reduce_max_sync(all, most);
        if (threadIdx.x % 32 == 0) atomicMax(&most_of[0], most);
    }
    __syncthreads();

    if constexpr (by_rows) {
        const std::int64_t own = first_column + threadIdx.x;
        if (op.transposed && threadIdx.x < square && own < op.width)
            op.transposed_scales[blockIdx.y * op.transposed_pitch + own] =
                BlockFactor(most_of[threadIdx.x]).scale;
    } else if (threadIdx.x == 0) {
        const std::int64_t down = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y,
                           across = std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
        const float scale = BlockFactor(most_of[0]).scale;
        if (op.y) op.block_scales[down * op.scale_pitch + blockIdx.x] = scale;
        if (op.transposed) op.transposed_scales[across * op.transposed_pitch + blockIdx.y] = scale;
    }
    float column_factors[8];
#pragma unroll
    for (int e = 0; e < 8; ++e)
        column_factors[e] = BlockFactor(most_of[by_rows ? column_eight * 8 + e : 0]).factor;
    uint2 bytes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        bytes[i] = make_uint2(0, 0);
        if (!is_there(i)) continue;
        float values[8];
        to_floats(loaded[i], values);
        if (op.y) {
            const BlockFactor of_block(by_rows ? of_row[i] : most_of[0]);
            const std::int64_t at = rows.first + row + i;
            *reinterpret_cast<uint2*>(op.y + op.first_element() + at * op.width + column) =
                to_fp8(values, of_block.factor);
            if (by_rows && column_eight == 0)
                op.block_scales[blockIdx.x * op.scale_pitch + at] = of_block.scale;
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] *= column_factors[e];
        bytes[i] = to_fp8(values, 1);
    }
    if (op.transposed) write_transposed(turned, bytes, op);
}

/// quantise_square() for rows of any width and alignment, one element per thread.
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

/// The transpose of FP8 numbers that are there.
__global__ void __launch_bounds__(square_threads)
    transpose_square(const std::uint8_t* x, const Quantised op) {
    __shared__ TurnedSquare turned;
    const std::int64_t row = std::int64_t{blockIdx.y} * square + threadIdx.x / 16 * 8,
                       column = std::int64_t{blockIdx.x} * square + threadIdx.x % 16 * 8;
    wait_for_earlier_kernels();
    const std::uint8_t* const from = x + op.first_element() + row * op.width + column;
    uint2 bytes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        bytes[i] = row + i < op.rows && column < op.width
                       ? __ldcs(reinterpret_cast<const uint2*>(from + i * op.width))
                       : make_uint2(0, 0);
    write_transposed(turned, bytes, op);
}

__global__ void write_scale(const float* maximum, float* scale) {
    *scale = Fp8Factor(maximum).scale;
}

/// What a Quantise and a QuantiseBlocks have in common.
template <class Operation>
Quantised quantised_by(const Operation& op) {
    const std::int64_t rows = op.x.size(0) / op.groups;
    const bool sorted = op.offsets && op.transposed;
    return {.y = elements<std::uint8_t>(op.y),
            .transposed = elements<std::uint8_t>(op.transposed),
            .rows = rows,
            .width = op.x.size(1),
            .stride = op.x.stride(0),
            .padded = op.transposed ? op.transposed.size(1) : rows,
            .offsets = elements<const std::int32_t>(op.offsets),
            .experts = sorted ? static_cast<int>(op.offsets.size(0) - 1) : 0};
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
    const std::int64_t width = op.x.size(1);
    Quantised quantised = quantised_by(op);
    quantised.maximum = elements<const float>(op.maximum);
    quantised.scale = elements<float>(op.scale);
    if (quantised.padded * width == 0) {
        write_scale<<<1, 1, 0, launch.stream>>>(quantised.maximum, quantised.scale);
        return check_launch("quantise");
    }
    const auto aligned = [](const void* address) {
        return reinterpret_cast<std::uintptr_t>(address) % 8 == 0;
    };
    const bool sorted = quantised.experts > 0;
    const bool wide = eights_fit(op.x) && aligned(quantised.y) && aligned(quantised.transposed);
    with_floating(op.x.dtype(), [&]<class T>() {
        if (wide) {
            launch_early("quantise", launch, sorted ? quantise_square<T, true> : quantise_square<T, false>,
                         quantised.blocks(op.groups, square, square), square_threads, 0,
                         elements<const T>(op.x), quantised);
        } else {
            auto* const kernel = sorted ? quantise_any<T, true> : quantise_any<T, false>;
            kernel<<<quantised.blocks(op.groups, threads_of_groups, 1), threads_of_groups, 0,
                     launch.stream>>>(elements<const T>(op.x), quantised);
            check_launch("quantise");
        }
    });
}

void fp8_transpose(const Launch& launch, const Fp8Transpose& op) {
    if (op.x.numel() == 0) return;
    const auto* const x = elements<const std::uint8_t>(op.x);
    auto* const y = elements<std::uint8_t>(op.y);
    require(reinterpret_cast<std::uintptr_t>(x) % 8 == 0 && reinterpret_cast<std::uintptr_t>(y) % 8 == 0,
            "transposes of FP8 numbers that are not aligned");
    const std::int64_t rows = op.x.size(0) / op.groups;
    const Quantised transpose{.transposed = y, .rows = rows, .width = op.x.size(1), .padded = rows};
    launch_early("fp8_transpose", launch, transpose_square, transpose.blocks(op.groups, square, square),
                 square_threads, 0, x, transpose);
}

void quantise_blocks(const Launch& launch, const QuantiseBlocks& op) {
    Quantised quantised = quantised_by(op);
    if (quantised.padded * quantised.width == 0) return;
    require(eights_fit(op.x), "blocks of rows that are not aligned");
    quantised.block_scales = elements<float>(op.scales);
    quantised.transposed_scales = elements<float>(op.transposed_scales);
    if (op.scales) quantised.scale_pitch = op.scales.size(1);
    if (op.transposed_scales) quantised.transposed_pitch = op.transposed_scales.size(1);
    with_floating(op.x.dtype(), [&]<class T>() {
        launch_early("quantise_blocks", launch,
                     op.blocks == Fp8Scales::squares ? quantise_square_blocks<T, false, false>
                     : quantised.experts > 0         ? quantise_square_blocks<T, true, true>
                                                     : quantise_square_blocks<T, false, true>,
                     quantised.blocks(op.groups, square, square), square_threads, 0, elements<const T>(op.x),
                     quantised);
    });
}

}  // namespace drover::cuda
