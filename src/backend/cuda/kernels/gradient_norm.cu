#include <algorithm>

#include "backend/cuda/kernels/any_type.cuh"
#include "backend/cuda/kernels/leaf_chunks.cuh"

namespace drover::cuda {
namespace {

struct SquaredTensor {
    const void* data;
    std::int64_t count;
    std::int64_t type;  ///< a DType; as wide as the other members, so that rows have no padding

    __device__ DType dtype() const { return static_cast<DType>(type); }
};

/// In fp32, which takes a quarter of f64's time, unless the sum leaves its range.
__device__ double sum_of_eight_squares(const float (&values)[8]) {
    float quick = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) quick = fmaf(values[e], values[e], quick);
    if (quick > 1e-30f && quick < 1e38f) return static_cast<double>(quick);
    double sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += static_cast<double>(values[e]) * static_cast<double>(values[e]);
    return sum;
}

/// T: the type of all tensors, or Any.
template <class T>
__global__ void __launch_bounds__(chunk_threads)
    square_chunks(const LeafChunks<SquaredTensor> tensors, double* sums) {
    const Chunk chunk = tensors.chunk();
    const SquaredTensor tensor = tensors.rows[chunk.leaf];
    const DType dtype = tensor.dtype();
    const bool wide = reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
    double sum = 0;
    // Several loads at once hide memory latency; as many as fit into registers.
    constexpr int unrolled = sizeof(Registers<T>) > 16 ? 4 : 8;
    constexpr std::int64_t step = chunk_threads * 8;
    for (std::int64_t first = chunk.begin + threadIdx.x * 8; first < chunk.end; first += step * unrolled) {
        Registers<T> loaded[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; ++i)
            if (wide && first + i * step + 8 <= chunk.end)
                loaded[i] = load_eight_of<T>(tensor.data, dtype, first + i * step);
#pragma unroll
        for (int i = 0; i < unrolled; ++i) {
            const std::int64_t at = first + i * step;
            float values[8] = {};
            if (wide && at + 8 <= chunk.end) {
                to_floats_of<T>(loaded[i], dtype, values);
            } else {
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    if (at + e < chunk.end) values[e] = load_one_of(tensor.data, dtype, at + e);
            }
            sum += sum_of_eight_squares(values);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[tensors.begin + blockIdx.x] = sum;
}

__global__ void add_chunks(const LeafChunks<SquaredTensor> tensors, const double* of_chunk, double* sums) {
    const double sum = sum_of_chunks(tensors, of_chunk);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void make_clip_factor(const double* sums, std::int64_t count, float* scalars, float max_norm,
                                 float gradient_scale, bool guarded, const double* loss) {
    double total = 0;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) total += sums[i];
    total = block_sum(total);
    if (threadIdx.x > 0) return;
    const auto norm = static_cast<float>(sqrt(total) / static_cast<double>(gradient_scale));
    const float factor = max_norm / (norm + 1e-6f);
    scalars[StepScalar::gradient_norm] = norm;
    // Written so that a NaN norm gives a NaN factor.
    scalars[StepScalar::clip_factor] = (max_norm <= 0 || factor > 1 ? 1.f : factor) / gradient_scale;
    const bool finite = isfinite(norm) && (loss == nullptr || isfinite(*loss));
    scalars[StepScalar::skips] = guarded && !finite ? 1.f : 0.f;
}

}  // namespace

void sum_of_squares(const Launch& launch, const SumOfSquares& op) {
    if (op.tensors.empty()) return;
    std::vector<SquaredTensor> rows;
    rows.reserve(op.tensors.size());
    for (const Tensor& tensor : op.tensors)
        rows.push_back({tensor.raw(), tensor.numel(), static_cast<std::int64_t>(tensor.dtype())});
    const LeafChunks<SquaredTensor> leaves = LeafTable<SquaredTensor>(launch, rows).all();
    auto* of_chunk = launch.scratch.take_array<double>(static_cast<std::size_t>(leaves.chunks()));
    const auto square = [&]<class T>() {
        if (leaves.chunks() > 0)
            square_chunks<T><<<leaves.chunks(), chunk_threads, 0, launch.stream>>>(leaves, of_chunk);
    };
    const DType first = op.tensors[0].dtype();
    if (std::all_of(op.tensors.begin(), op.tensors.end(),
                    [&](const Tensor& tensor) { return tensor.dtype() == first; }))
        with_floating(first, square);
    else
        square.template operator()<Any>();
    add_chunks<<<leaves.leaves, 256, 0, launch.stream>>>(leaves, of_chunk, elements<double>(op.sums));
    check_launch("sum_of_squares");
}

void clip_factor(const Launch& launch, const ClipFactor& op) {
    make_clip_factor<<<1, 256, 0, launch.stream>>>(elements<const double>(op.sums), op.sums.size(0),
                                                   elements<float>(op.scalars), op.max_norm,
                                                   op.gradient_scale, op.guarded,
                                                   elements<const double>(op.loss));
    check_launch("clip_factor");
}

}  // namespace drover::cuda
