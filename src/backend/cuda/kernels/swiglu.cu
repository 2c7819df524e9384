#include "backend/cuda/kernels/early_launch.cuh"
#include "backend/cuda/kernels/exponentials.cuh"
#include "backend/cuda/kernels/fp8.cuh"
#include "backend/cuda/kernels/row_groups.cuh"

namespace drover::cuda {
namespace {

/// Groups of elements that a thread has in flight at once.
constexpr int swiglu_unrolled = 2;

template <class T>
__device__ float silu_times(float gate, float up) {
    return rounded<T>(gate * sigmoid_for<T>(gate)) * up;
}

template <class T, bool wide>
__global__ void __launch_bounds__(threads_of_groups)
    forward(const RowMatrix<T> gate_up, const RowMatrix<T> y, float* maximum, const RowGroups groups,
            std::int64_t width) {
    wait_for_earlier_kernels();
    std::uint32_t most = 0;
    Group<T, wide> gates[swiglu_unrolled], ups[swiglu_unrolled];
#pragma unroll
    for (int i = 0; i < swiglu_unrolled; ++i) {
        const std::uint32_t group = groups.group(i, swiglu_unrolled);
        if (group >= groups.count) break;
        const T* gate = gate_up.at(groups.place<wide>(group));
        gates[i] = load_group_streaming<T, wide>(gate);
        ups[i] = load_group_streaming<T, wide>(gate + width);
    }
#pragma unroll
    for (int i = 0; i < swiglu_unrolled; ++i) {
        const std::uint32_t group = groups.group(i, swiglu_unrolled);
        if (group >= groups.count) break;
        float g[group_size<wide>], u[group_size<wide>];
        group_to_floats(gates[i], g);
        group_to_floats(ups[i], u);
#pragma unroll
        for (int e = 0; e < group_size<wide>; ++e) {
            g[e] = silu_times<T>(g[e], u[e]);
            most = max(most, magnitude_bits(g[e]));
        }
        store_group(y.at(groups.place<wide>(group)), g);
    }
    if (maximum) raise_maximum(maximum, rounded_bits<T>(most));
}

/// dgate_up may be gate_up: a thread writes only where it has read. y may be absent.
template <class T, bool wide>
__global__ void __launch_bounds__(threads_of_groups)
    backward(const RowMatrix<T> gate_up, const RowMatrix<T> dy, const RowMatrix<T> dgate_up,
             const RowMatrix<T> y, float* maximum, const RowGroups groups, std::int64_t width) {
    wait_for_earlier_kernels();
    std::uint32_t most = 0;
    Group<T, wide> gates[swiglu_unrolled], ups[swiglu_unrolled], dys[swiglu_unrolled];
#pragma unroll
    for (int i = 0; i < swiglu_unrolled; ++i) {
        const std::uint32_t group = groups.group(i, swiglu_unrolled);
        if (group >= groups.count) break;
        const RowGroups::Place at = groups.place<wide>(group);
        gates[i] = load_group_streaming<T, wide>(gate_up.at(at));
        ups[i] = load_group_streaming<T, wide>(gate_up.at(at) + width);
        dys[i] = load_group_streaming<T, wide>(dy.at(at));
    }
#pragma unroll
    for (int i = 0; i < swiglu_unrolled; ++i) {
        const std::uint32_t group = groups.group(i, swiglu_unrolled);
        if (group >= groups.count) break;
        const RowGroups::Place at = groups.place<wide>(group);
        float g[group_size<wide>], u[group_size<wide>], d[group_size<wide>];
        group_to_floats(gates[i], g);
        group_to_floats(ups[i], u);
        group_to_floats(dys[i], d);
#pragma unroll
        for (int e = 0; e < group_size<wide>; ++e) {
            const float s = sigmoid_for<T>(g[e]), silu = rounded<T>(g[e] * s),
                        dsilu = rounded<T>(d[e] * u[e]);
            g[e] = dsilu * (s * (1.f + g[e] * (1.f - s)));
            const float product = silu * u[e];
            u[e] = d[e] * silu;
            d[e] = product;
            most = max(most, max(magnitude_bits(g[e]), magnitude_bits(u[e])));
        }
        store_group(dgate_up.at(at), g);
        store_group(dgate_up.at(at) + width, u);
        if (y.data) store_group(y.at(at), d);
    }
    if (maximum) raise_maximum(maximum, rounded_bits<T>(most));
}

}  // namespace

void swiglu(const Launch& launch, const Swiglu& op) {
    const std::int64_t rows = op.y.size(0), width = op.y.size(1);
    if (rows * width == 0) return;
    const bool wide = eights_fit(op.y) && eights_fit(op.gate_up, width, op.gate_up.stride(0));
    const RowGroups groups(rows, width, wide);
    with_floating(op.y.dtype(), [&]<class T>() {
        launch_early("swiglu", launch, wide ? forward<T, true> : forward<T, false>,
                     static_cast<unsigned>(groups.blocks(swiglu_unrolled)), threads_of_groups, 0,
                     RowMatrix<T>(op.gate_up), RowMatrix<T>(op.y), elements<float>(op.maximum), groups,
                     width);
    });
}

void swiglu_backward(const Launch& launch, const SwigluBackward& op) {
    const std::int64_t rows = op.dy.size(0), width = op.dy.size(1);
    if (rows * width == 0) return;
    const bool wide = eights_fit(op.dy) && eights_fit(op.gate_up, width, op.gate_up.stride(0)) &&
                      eights_fit(op.dgate_up, width, op.dgate_up.stride(0)) && eights_fit(op.y);
    const RowGroups groups(rows, width, wide);
    with_floating(op.dy.dtype(), [&]<class T>() {
        launch_early("swiglu_backward", launch, wide ? backward<T, true> : backward<T, false>,
                     static_cast<unsigned>(groups.blocks(swiglu_unrolled)), threads_of_groups, 0,
                     RowMatrix<T>(op.gate_up), RowMatrix<T>(op.dy), RowMatrix<T>(op.dgate_up),
                     RowMatrix<T>(op.y), elements<float>(op.maximum), groups, width);
    });
}

}  // namespace drover::cuda
