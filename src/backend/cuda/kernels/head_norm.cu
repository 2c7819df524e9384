#include <algorithm>

#include "backend/cuda/kernels/block_order.cuh"
#include "backend/cuda/kernels/column_sums.cuh"
#include "backend/cuda/kernels/eight_elements.cuh"

namespace drover::cuda {
namespace {

/// Threads of a block. A team of them, a power of two that is part of one warp, has one head: lane l has its
/// elements 8l … 8l + 7, or, where heads are not aligned and the team is a warp, l, l + 32, …
constexpr int head_threads = 256;
/// Blocks of the gradient on each multiprocessor, which leave 80 registers to a thread.
constexpr int blocks_at_once = 3;
/// Blocks that share the heads: as many as an H200 runs at once. A constant, because the order in which
/// dweight is summed depends on it.
constexpr std::int64_t most_blocks = 132 * blocks_at_once;

/// Heads that one team has in flight at once, in either direction: a gradient reads two rows for each.
template <class T>
constexpr int heads_of_team = sizeof(T) == 2 ? 4 : 2;
constexpr int gradients_of_team = 2;

template <class T>
struct HeadRows {
    T* data;
    std::int64_t token_stride, head_stride;

    explicit HeadRows(const Tensor& tensor)
        : data(elements<T>(tensor)), token_stride(tensor.stride(0)), head_stride(tensor.stride(1)) {}
};

/// The heads of all tokens, numbered token by token in 32 bits, and how teams share them.
struct NormedHeads {
    std::uint32_t count, of_token;
    int size, lanes;
    float eps;

    NormedHeads(const Tensor& x, bool wide, float eps)
        : count(static_cast<std::uint32_t>(x.size(0) * x.size(1))),
          of_token(static_cast<std::uint32_t>(x.size(1))),
          size(static_cast<int>(x.size(2))),
          lanes(wide ? 1 : 32),
          eps(eps) {
        require(x.size(0) * x.size(1) < (std::int64_t{1} << 32) - (1 << 16),
                "more heads than a kernel counts");
        while (8 * lanes < size) lanes *= 2;
    }

    /// Blocks whose teams have `each` heads.
    std::int64_t blocks(int each) const { return ceil_div(count, head_threads / lanes * each); }

    template <class T>
    __device__ T* row(const HeadRows<T>& rows, std::uint32_t head) const {
        const std::uint32_t token = head / of_token;
        return rows.data + token * rows.token_stride + (head - token * of_token) * rows.head_stride;
    }
    /// The place of a lane's element e.
    template <bool wide>
    __device__ int place(int lane, int e) const {
        return wide ? 8 * lane + e : lane + 32 * e;
    }
    /// Elements that the lane does not have are zero.
    template <bool wide, class T>
    __device__ Eight<T> load(const T* row, int lane) const {
        Eight<T> loaded = {};
        if constexpr (wide) {
            if (8 * lane < size) loaded = load_eight(row + 8 * lane);
        } else {
            T* const single = reinterpret_cast<T*>(&loaded);
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (place<wide>(lane, e) < size) single[e] = row[place<wide>(lane, e)];
        }
        return loaded;
    }
    template <bool wide, class T>
    __device__ void store(T* row, int lane, const float (&values)[8]) const {
        if constexpr (wide) {
            if (8 * lane < size) store_eight(row + 8 * lane, to_eight<T>(values));
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (place<wide>(lane, e) < size) row[place<wide>(lane, e)] = from_float<T>(values[e]);
        }
    }
    /// The sum over a team's lanes, in each of them. All threads of a warp call it.
    __device__ float team_sum(float value) const {
        for (int offset = lanes / 2; offset > 0; offset /= 2)
            value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
        return value;
    }
    __device__ float rstd_of(float squares) const {
        return 1.f / sqrtf(squares / static_cast<float>(size) + eps);
    }
};

template <class T, class W, bool wide>
__global__ void __launch_bounds__(head_threads)
    normalise_heads(const NormedHeads heads, const HeadRows<const T> x, const W* weight,
                    const HeadRows<T> y) {
    constexpr int held = heads_of_team<T>;
    const int lane = threadIdx.x % heads.lanes, teams = head_threads / heads.lanes;
    const std::uint32_t first = block_from_the_end() * (teams * held) + threadIdx.x / heads.lanes;
    wait_for_earlier_kernels();
    Eight<T> loaded[held] = {};
#pragma unroll
    for (int i = 0; i < held; ++i)
        if (first + i * teams < heads.count)
            loaded[i] = heads.load<wide>(heads.row(x, first + i * teams), lane);
    float factors[8];
    to_floats(heads.load<wide>(weight, lane), factors);
#pragma unroll
    for (int i = 0; i < held; ++i) {
        float values[8], squares = 0;
        to_floats(loaded[i], values);
#pragma unroll
        for (int e = 0; e < 8; ++e) squares += values[e] * values[e];
        const float rstd = heads.rstd_of(heads.team_sum(squares));
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = rounded<T>(values[e] * rstd) * factors[e];
        if (first + i * teams < heads.count) heads.store<wide>(heads.row(y, first + i * teams), lane, values);
    }
}

/// A thread keeps its elements' part of dweight over all of its heads. At the end the teams' parts are added
/// in shared memory, and each block leaves its own: slices is [blocks][size].
template <class T, class W, bool wide>
__global__ void __launch_bounds__(head_threads, blocks_at_once)
    gradient_of_heads(const NormedHeads heads, const HeadRows<const T> dy, const HeadRows<const T> x,
                      const W* weight, const HeadRows<T> dx, float* slices) {
    constexpr int held = gradients_of_team;
    __shared__ float of_team[head_threads * 8];
    const int lane = threadIdx.x % heads.lanes, teams = head_threads / heads.lanes;
    const int team = threadIdx.x / heads.lanes, of_block = teams * held;
    wait_for_earlier_kernels();
    const Eight<W> factors = heads.load<wide>(weight, lane);
    float dweight[8] = {};
    // The same rounds for all threads of a block, because the lanes of a warp add their sums together.
    for (std::int64_t begin = std::int64_t{blockIdx.x} * of_block; begin < heads.count;
         begin += std::int64_t{gridDim.x} * of_block) {
        const std::uint32_t first = static_cast<std::uint32_t>(begin) + team;
        Eight<T> gradients[held] = {}, inputs[held] = {};
#pragma unroll
        for (int i = 0; i < held; ++i)
            if (first + i * teams < heads.count) {
                gradients[i] = heads.load<wide>(heads.row(dy, first + i * teams), lane);
                inputs[i] = heads.load<wide>(heads.row(x, first + i * teams), lane);
            }
#pragma unroll
        for (int i = 0; i < held; ++i) {
            float d[8], r[8], w[8], squares = 0, dots = 0;
            to_floats(gradients[i], d);
            to_floats(inputs[i], r);
            to_floats(factors, w);
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                squares += r[e] * r[e];
                dots += d[e] * w[e] * r[e];
            }
            const float rstd = heads.rstd_of(heads.team_sum(squares));
            const float along_x =
                rstd * rstd * (heads.team_sum(dots) * rstd / static_cast<float>(heads.size));
            if (first + i * teams >= heads.count) continue;
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                dweight[e] += d[e] * (r[e] * rstd);
                d[e] = d[e] * w[e] * rstd - r[e] * along_x;
            }
            heads.store<wide>(heads.row(dx, first + i * teams), lane, d);
        }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e)
        if (heads.place<wide>(lane, e) < heads.size)
            of_team[team * heads.size + heads.place<wide>(lane, e)] = dweight[e];
    __syncthreads();
    for (int at = threadIdx.x; at < heads.size; at += head_threads) {
        float sum = 0;
        for (int i = 0; i < teams; ++i) sum += of_team[i * heads.size + at];
        slices[std::int64_t{blockIdx.x} * heads.size + at] = sum;
    }
}

/// Calls body<T, W>() with the types of the heads and the weight, which is theirs or f32.
template <class Body>
void with_head_types(const Tensor& heads, const Tensor& weight, const Body& body) {
    with_floating(heads.dtype(), [&]<class T>() {
        if (weight.dtype() == DType::f32) return body.template operator()<T, float>();
        if constexpr (sizeof(T) == 2) return body.template operator()<T, T>();
    });
}

bool heads_fit(const Tensor& heads) {
    return eights_fit(heads, heads.size(2), heads.stride(0)) &&
           eights_fit(heads, heads.size(2), heads.stride(1));
}

}  // namespace

void head_norm(const Launch& launch, const HeadNorm& op) {
    if (op.x.numel() == 0) return;
    const bool wide = heads_fit(op.x) && heads_fit(op.y) && eights_fit(op.weight, op.weight.size(0), 0);
    const NormedHeads heads(op.x, wide, op.eps);
    with_head_types(op.x, op.weight, [&]<class T, class W>() {
        launch_early("head_norm", launch, wide ? normalise_heads<T, W, true> : normalise_heads<T, W, false>,
                     static_cast<unsigned>(heads.blocks(heads_of_team<T>)), head_threads, 0, heads,
                     HeadRows<const T>(op.x), elements<const W>(op.weight), HeadRows<T>(op.y));
    });
}

void head_norm_backward(const Launch& launch, const HeadNormBackward& op) {
    const bool wide = heads_fit(op.dy) && heads_fit(op.x) && heads_fit(op.dx) &&
                      eights_fit(op.weight, op.weight.size(0), 0);
    const NormedHeads heads(op.dy, wide, op.eps);
    auto* slices = launch.scratch.take_array<float>(static_cast<std::size_t>(most_blocks * heads.size));
    std::int64_t blocks = 0;
    if (heads.count > 0)
        with_head_types(op.dy, op.weight, [&]<class T, class W>() {
            blocks = std::min(most_blocks, heads.blocks(gradients_of_team));
            launch_early("head_norm_backward", launch,
                         wide ? gradient_of_heads<T, W, true> : gradient_of_heads<T, W, false>,
                         static_cast<unsigned>(blocks), head_threads, 0, heads, HeadRows<const T>(op.dy),
                         HeadRows<const T>(op.x), elements<const W>(op.weight), HeadRows<T>(op.dx), slices);
        });
    if (op.dweight) sum_slices_of_columns(launch, slices, blocks, op.dweight, op.accumulate);
}

}  // namespace drover::cuda
