#include "backend/cuda/kernels/eights.cuh"

namespace drover::cuda {
namespace {

constexpr int threads = 256;
/// Groups of elements that a thread has under way at once.
constexpr int unrolled = 2;

/// Where a group of elements of a row stands: eight of them, or one where rows are not aligned.
struct Place {
    std::int64_t row, column;
};

template <bool wide>
__device__ Place place_of(std::uint32_t group, std::uint32_t groups_in_row) {
    const std::uint32_t row = group / groups_in_row;
    return {row, std::int64_t{group - row * groups_in_row} * (wide ? 8 : 1)};
}

template <class T, bool wide>
using Group = std::conditional_t<wide, Eight<T>, T>;

template <class T, bool wide>
__device__ Group<T, wide> load_group(const T* from) {
    if constexpr (wide)
        return load_eight_streaming(from);
    else
        return *from;
}

template <class T>
__device__ float silu_times(float gate, float up) {
    return rounded<T>(gate * sigmoid_for<T>(gate)) * up;
}

template <class T>
__device__ void gradients_of(float& gate, float& up, float dy) {
    const float s = sigmoid_for<T>(gate), dsilu = rounded<T>(dy * up);
    up = dy * rounded<T>(gate * s);
    gate = dsilu * (s * (1.f + gate * (1.f - s)));
}

template <class T, bool wide>
__global__ void __launch_bounds__(threads)
    forward(const T* gate_up, T* y, std::uint32_t groups_in_row, std::uint32_t groups, std::int64_t width,
            std::int64_t gate_up_stride, std::int64_t y_stride) {
    const std::uint32_t first = blockIdx.x * (threads * unrolled) + threadIdx.x;
    Group<T, wide> gates[unrolled], ups[unrolled];
    T* to[unrolled];
#pragma unroll
    for (int i = 0; i < unrolled; ++i) {
        if (first + i * threads >= groups) break;
        const Place at = place_of<wide>(first + i * threads, groups_in_row);
        const T* gate = gate_up + at.row * gate_up_stride + at.column;
        to[i] = y + at.row * y_stride + at.column;
        gates[i] = load_group<T, wide>(gate);
        ups[i] = load_group<T, wide>(gate + width);
    }
#pragma unroll
    for (int i = 0; i < unrolled; ++i) {
        if (first + i * threads >= groups) return;
        if constexpr (wide) {
            float g[8], u[8];
            to_floats(gates[i], g);
            to_floats(ups[i], u);
#pragma unroll
            for (int e = 0; e < 8; ++e) g[e] = silu_times<T>(g[e], u[e]);
            store_eight(to[i], to_eight<T>(g));
        } else {
            *to[i] = from_float<T>(silu_times<T>(to_float(gates[i]), to_float(ups[i])));
        }
    }
}

/// dgate_up may be gate_up: a thread writes only where it has read.
template <class T, bool wide>
__global__ void __launch_bounds__(threads)
    backward(const T* gate_up, const T* dy, T* dgate_up, std::uint32_t groups_in_row, std::uint32_t groups,
             std::int64_t width, std::int64_t gate_up_stride, std::int64_t dy_stride,
             std::int64_t dgate_up_stride) {
    const std::uint32_t first = blockIdx.x * (threads * unrolled) + threadIdx.x;
    Group<T, wide> gates[unrolled], ups[unrolled], dys[unrolled];
    T* to[unrolled];
#pragma unroll
    for (int i = 0; i < unrolled; ++i) {
        if (first + i * threads >= groups) break;
        const Place at = place_of<wide>(first + i * threads, groups_in_row);
        const T* gate = gate_up + at.row * gate_up_stride + at.column;
        to[i] = dgate_up + at.row * dgate_up_stride + at.column;
        gates[i] = load_group<T, wide>(gate);
        ups[i] = load_group<T, wide>(gate + width);
        dys[i] = load_group<T, wide>(dy + at.row * dy_stride + at.column);
    }
#pragma unroll
    for (int i = 0; i < unrolled; ++i) {
        if (first + i * threads >= groups) return;
        if constexpr (wide) {
            float g[8], u[8], d[8];
            to_floats(gates[i], g);
            to_floats(ups[i], u);
            to_floats(dys[i], d);
#pragma unroll
            for (int e = 0; e < 8; ++e) gradients_of<T>(g[e], u[e], d[e]);
            store_eight(to[i], to_eight<T>(g));
            store_eight(to[i] + width, to_eight<T>(u));
        } else {
            float g = to_float(gates[i]), u = to_float(ups[i]);
            gradients_of<T>(g, u, to_float(dys[i]));
            to[i][0] = from_float<T>(g);
            to[i][width] = from_float<T>(u);
        }
    }
}

/// Groups of all rows, which the kernels count in 32 bits.
std::uint32_t count_groups(std::int64_t rows, std::int64_t groups_in_row) {
    require(rows * groups_in_row < (std::int64_t{1} << 32) - 2 * threads * unrolled,
            "swiglu: more elements than the kernel counts");
    return static_cast<std::uint32_t>(rows * groups_in_row);
}

}  // namespace

void swiglu(const Launch& launch, const Swiglu& op) {
    const std::int64_t rows = op.y.size(0), width = op.y.size(1);
    if (rows * width == 0) return;
    const bool wide = eights_fit(op.y) && eights_fit(op.gate_up, width, op.gate_up.stride(0));
    const auto in_row = static_cast<std::uint32_t>(wide ? width / 8 : width);
    const std::uint32_t groups = count_groups(rows, in_row);
    with_floating(op.y.dtype(), [&]<class T>() {
        const auto kernel = wide ? forward<T, true> : forward<T, false>;
        kernel<<<ceil_div(groups, threads * unrolled), threads, 0, launch.stream>>>(
            elements<T>(op.gate_up), elements<T>(op.y), in_row, groups, width, op.gate_up.stride(0),
            op.y.stride(0));
    });
    check_launch("swiglu");
}

void swiglu_backward(const Launch& launch, const SwigluBackward& op) {
    const std::int64_t rows = op.dy.size(0), width = op.dy.size(1);
    if (rows * width == 0) return;
    const bool wide = eights_fit(op.dy) && eights_fit(op.gate_up, width, op.gate_up.stride(0)) &&
                      eights_fit(op.dgate_up, width, op.dgate_up.stride(0));
    const auto in_row = static_cast<std::uint32_t>(wide ? width / 8 : width);
    const std::uint32_t groups = count_groups(rows, in_row);
    with_floating(op.dy.dtype(), [&]<class T>() {
        const auto kernel = wide ? backward<T, true> : backward<T, false>;
        kernel<<<ceil_div(groups, threads * unrolled), threads, 0, launch.stream>>>(
            elements<T>(op.gate_up), elements<T>(op.dy), elements<T>(op.dgate_up), in_row, groups, width,
            op.gate_up.stride(0), op.dy.stride(0), op.dgate_up.stride(0));
    });
    check_launch("swiglu_backward");
}

}  // namespace drover::cuda
