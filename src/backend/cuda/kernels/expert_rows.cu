#include "backend/cuda/kernels/device_code.cuh"

/// One block per row or token; `wide`: 16 bytes at a time.
namespace drover::cuda {
namespace {

constexpr int expert_threads = 256;

/// Calls body(column) for the block's columns; a column is a whole pack when wide.
template <class T, bool wide, class Body>
__device__ void for_each_column(int width, const Body& body) {
    constexpr int step = wide ? pack_size<T> : 1;
#pragma unroll 4
    for (int column = threadIdx.x * step; column < width; column += expert_threads * step) body(column);
}

/// One element, or as many as a pack holds.
template <class T, bool wide>
struct Piece {
    static constexpr int size = wide ? pack_size<T> : 1;
    T element[size];

    __device__ static Piece load(const T* from) {
        Piece piece;
        if constexpr (wide) {
            const Pack<T> pack = load_pack(from);
#pragma unroll
            for (int i = 0; i < size; ++i) piece.element[i] = pack.element[i];
        } else {
            piece.element[0] = *from;
        }
        return piece;
    }
    __device__ void store(T* to) const {
        if constexpr (wide) {
            Pack<T> pack;
#pragma unroll
            for (int i = 0; i < size; ++i) pack.element[i] = element[i];
            store_pack(to, pack);
        } else {
            *to = element[0];
        }
    }
};

template <class T, bool wide>
__global__ void __launch_bounds__(expert_threads)
    copy_to_rows(const T* x, std::int64_t x_stride, const std::int32_t* slot_of_row, T* rows,
                 std::int64_t rows_stride, int slots, int width) {
    const std::int64_t row = blockIdx.x;
    const T* from = x + static_cast<std::int64_t>(slot_of_row[row] / slots) * x_stride;
    T* to = rows + row * rows_stride;
    for_each_column<T, wide>(width,
                             [&](int column) { Piece<T, wide>::load(from + column).store(to + column); });
}

template <class T, bool wide>
__global__ void __launch_bounds__(expert_threads)
    sum_to_tokens(const T* rows, std::int64_t rows_stride, const std::int32_t* row_of_slot,
                  const float* weights, T* y, std::int64_t y_stride, int slots, int width) {
    using P = Piece<T, wide>;
    const std::int64_t token = blockIdx.x;
    row_of_slot += token * slots;
    if (weights != nullptr) weights += token * slots;
    for_each_column<T, wide>(width, [&](int column) {
        float sum[P::size] = {};
#pragma unroll 2
        for (int slot = 0; slot < slots; ++slot) {
            const P piece = P::load(rows + row_of_slot[slot] * rows_stride + column);
            const float weight = weights != nullptr ? weights[slot] : 1.f;
#pragma unroll
            for (int i = 0; i < P::size; ++i) sum[i] += weight * to_float(piece.element[i]);
        }
        P result;
#pragma unroll
        for (int i = 0; i < P::size; ++i) result.element[i] = from_float<T>(sum[i]);
        result.store(y + token * y_stride + column);
    });
}

template <class T, bool wide>
__device__ void scale_row(T* row, int width, float weight) {
    using P = Piece<T, wide>;
    for_each_column<T, wide>(width, [&](int column) {
        P piece = P::load(row + column);
#pragma unroll
        for (int i = 0; i < P::size; ++i)
            piece.element[i] = from_float<T>(weight * to_float(piece.element[i]));
        piece.store(row + column);
    });
}

template <class T, bool wide>
__global__ void __launch_bounds__(expert_threads)
    apply_weights(const T* activated, std::int64_t activated_stride, T* dactivated,
                  std::int64_t dactivated_stride, T* dy, std::int64_t dy_stride,
                  const std::int32_t* slot_of_row, const float* weights, float* dweights, int width,
                  int hidden) {
    using P = Piece<T, wide>;
    const std::int64_t row = blockIdx.x;
    const std::int32_t slot = slot_of_row[row];
    const float weight = weights[slot];
    activated += row * activated_stride;
    dactivated += row * dactivated_stride;
    float inner = 0.f;
    for_each_column<T, wide>(width, [&](int column) {
        const P a = P::load(activated + column);
        P d = P::load(dactivated + column);
#pragma unroll
        for (int i = 0; i < P::size; ++i) {
            inner += to_float(d.element[i]) * to_float(a.element[i]);
            d.element[i] = from_float<T>(weight * to_float(d.element[i]));
        }
        d.store(dactivated + column);
    });
    scale_row<T, wide>(dy + row * dy_stride, hidden, weight);
    inner = block_sum(inner);
    if (threadIdx.x == 0) dweights[slot] = inner;
}

template <class T>
bool fits(const Tensor& matrix) {
    return packs_fit<T>(matrix.raw(), matrix.size(1), matrix.stride(0));
}

template <class Body>
void with_width(bool wide, const Body& body) {
    if (wide)
        body.template operator()<true>();
    else
        body.template operator()<false>();
}

}  // namespace

void tokens_to_rows(const Launch& launch, const TokensToRows& op) {
    const std::int64_t rows = op.rows.size(0);
    if (op.rows.numel() == 0) return;
    with_floating(op.x.dtype(), [&]<class T>() {
        with_width(fits<T>(op.x) && fits<T>(op.rows), [&]<bool wide>() {
            copy_to_rows<T, wide><<<static_cast<unsigned>(rows), expert_threads, 0, launch.stream>>>(
                elements<const T>(op.x), op.x.stride(0), elements<std::int32_t>(op.slot_of_row),
                elements<T>(op.rows), op.rows.stride(0), static_cast<int>(rows / op.x.size(0)),
                static_cast<int>(op.x.size(1)));
        });
    });
    check_launch("tokens_to_rows");
}

void rows_to_tokens(const Launch& launch, const RowsToTokens& op) {
    const std::int64_t tokens = op.y.size(0);
    if (op.y.numel() == 0) return;
    with_floating(op.y.dtype(), [&]<class T>() {
        with_width(fits<T>(op.rows) && fits<T>(op.y), [&]<bool wide>() {
            sum_to_tokens<T, wide><<<static_cast<unsigned>(tokens), expert_threads, 0, launch.stream>>>(
                elements<const T>(op.rows), op.rows.stride(0), elements<std::int32_t>(op.row_of_slot),
                elements<float>(op.weights), elements<T>(op.y), op.y.stride(0),
                static_cast<int>(op.rows.size(0) / tokens), static_cast<int>(op.y.size(1)));
        });
    });
    check_launch("rows_to_tokens");
}

void weight_rows(const Launch& launch, const WeightRows& op) {
    const std::int64_t rows = op.activated.size(0);
    if (rows == 0) return;
    with_floating(op.activated.dtype(), [&]<class T>() {
        with_width(fits<T>(op.activated) && fits<T>(op.dactivated) && fits<T>(op.dy), [&]<bool wide>() {
            apply_weights<T, wide><<<static_cast<unsigned>(rows), expert_threads, 0, launch.stream>>>(
                elements<const T>(op.activated), op.activated.stride(0), elements<T>(op.dactivated),
                op.dactivated.stride(0), elements<T>(op.dy), op.dy.stride(0),
                elements<std::int32_t>(op.slot_of_row), elements<float>(op.weights),
                elements<float>(op.dweights), static_cast<int>(op.activated.size(1)),
                static_cast<int>(op.dy.size(1)));
        });
    });
    check_launch("weight_rows");
}

}  // namespace drover::cuda
