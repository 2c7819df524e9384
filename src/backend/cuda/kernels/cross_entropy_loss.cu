#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "backend/cuda/kernels/cross_entropy_rows.cuh"

// A block keeps the row of logits that it works on in shared memory, so that they come from memory once, and
// the next rows are on their way meanwhile. Every thread sends for its own eights of a row and uses no
// others, so nobody waits for another thread but for the statistics.

namespace drover::cuda {
namespace {

constexpr int threads = 1024, warps = threads / 32;
/// A KiB of the system and what the block has besides.
constexpr int other_bytes = 2048;

/// A thread's eights of the rows that its block goes through, a few rows at a time. Number `slot` of a row
/// holds the elements from (slot · threads + thread) · 8 on.
template <class T, int rows_held>
class HeldRows {
  public:
    static_assert(sizeof(T) == 2);

    /// `shared`: [rows_held][slots][threads].
    __device__ HeldRows(uint4* shared, std::int32_t width)
        : shared_(shared), eights_(width / 8), slots_((eights_ + threads - 1) / threads) {
        // What no row reaches is −∞ for good: it changes neither maximum nor sum.
        const std::uint32_t pair = std::is_same_v<T, bfloat_t> ? 0xFF80FF80u : 0xFC00FC00u;
        if (!has(slots_ - 1))
            for (int row = 0; row < rows_held; ++row)
                shared_[place(row, slots_ - 1)] = make_uint4(pair, pair, pair, pair);
    }

    /// Every call counts for wait_for_first(), also one without a row.
    __device__ void send_for(const T* row, int held) {
        if (row != nullptr)
            for (std::int32_t slot = 0; slot < slots_; ++slot)
                if (has(slot)) __pipeline_memcpy_async(shared_ + place(held, slot), row + first_of(slot), 16);
        __pipeline_commit();
    }
    /// Waits for the row that was sent for first of those that have not been waited for.
    __device__ static void wait_for_first() { __pipeline_wait_prior(rows_held - 1); }

    /// Calls take(slot, eight) from the last slot to the first.
    template <class Take>
    __device__ void for_each(int held, const Take& take) const {
#pragma unroll 4
        for (std::int32_t slot = slots_ - 1; slot >= 0; --slot) take(slot, read(held, slot));
    }

    __device__ bool has(std::int32_t slot) const {
        return slot * threads + static_cast<std::int32_t>(threadIdx.x) < eights_;
    }
    /// The number of its first element.
    __device__ std::int32_t first_of(std::int32_t slot) const {
        return (slot * threads + static_cast<std::int32_t>(threadIdx.x)) * 8;
    }

    /// The first of this thread's elements in the slot that is `value`.
    __device__ std::int32_t find(float value, int held, std::int32_t slot) const {
        float values[8];
        to_floats(read(held, slot), values);
        std::int32_t at = 0;
#pragma unroll
        for (int e = 7; e >= 0; --e)
            if (values[e] == value) at = e;
        return first_of(slot) + at;
    }

  private:
    __device__ std::int32_t place(int held, std::int32_t slot) const {
        return (held * slots_ + slot) * threads + static_cast<std::int32_t>(threadIdx.x);
    }
    __device__ Eight<T> read(int held, std::int32_t slot) const {
        return {{shared_[place(held, slot)]}};
    }

    uint4* shared_;
    std::int32_t eights_, slots_;
};

/// A thread's share of each step over a row is followed by a meeting of the block: for the largest logit, and
/// for the sum of the exponentials from there.
template <class T, int rows_held>
__global__ void __launch_bounds__(threads, 1)
    losses_and_gradients(T* logits, const LossRows rows, const StatisticsOfRows results, std::int64_t count) {
    constexpr std::int32_t no_index = 0x7FFFFFFF;
    extern __shared__ uint4 shared[];
    __shared__ float maxima[warps], sums[warps];
    __shared__ std::int32_t first_of_largest;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) first_of_largest = no_index;

    HeldRows<T, rows_held> held_rows(shared, rows.width);
    const auto row_of = [&](std::int64_t row) { return row < count ? logits + row * rows.stride : nullptr; };
    for (int held = 0; held < rows_held; ++held)
        held_rows.send_for(row_of(blockIdx.x + std::int64_t{held} * gridDim.x), held);

    int held = 0;
    for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
        T* const of_row = row_of(row);
        const std::int32_t target = rows.target_of(row);
        // Read before anybody replaces it.
        const float target_logit = threadIdx.x == 0 && target >= 0 ? to_float(of_row[target]) : 0.f;

        held_rows.wait_for_first();
        float own_max = lowest();
        std::int32_t own_slot = 0;
        held_rows.for_each(held, [&](std::int32_t slot, const Eight<T>& eight) {
            const Eight<T> single[1] = {eight};
            const float largest = largest_of(single);
            if (largest >= own_max) own_slot = slot;  // of equals the first of the row
            own_max = fmaxf(own_max, largest);
        });
        const float warps_max = warp_max(own_max);
        if (lane == 0) maxima[warp] = warps_max;
        __syncthreads();
        const float max = warp_max(maxima[lane]);
        if (own_max == max && max != lowest())
            atomicMin(&first_of_largest, held_rows.find(own_max, held, own_slot));

        // A row of −∞ only has exponentials of zero: its share in a larger vocabulary.
        const float reference = max == lowest() ? 0.f : max;
        const ExponentialsFrom<T> exponential(reference);
        float sum = 0;
        held_rows.for_each(held, [&](std::int32_t, const Eight<T>& eight) {
            float values[8];
            to_floats(eight, values);
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = exponential(values[e]);
            sum += ((values[0] + values[1]) + (values[2] + values[3])) +
                   ((values[4] + values[5]) + (values[6] + values[7]));
        });
        sum = warp_sum(sum);
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        const float sum_exp = warp_sum(sums[lane]) * exponential.correction(reference);

        if (threadIdx.x == 0) {
            results.max[row] = max;
            results.sum_exp[row] = sum_exp;
            results.target_logit[row] = target_logit;
            results.argmax[row] = static_cast<std::int32_t>(
                (first_of_largest == no_index ? 0 : first_of_largest) + rows.first_id);
            rows.write_loss(row, max, sum_exp, target_logit);
            first_of_largest = no_index;  // the next one is looked for behind another meeting
        }
        const GradientOfRow<T> gradient(rows, row, max, sum_exp);
        held_rows.for_each(held, [&](std::int32_t slot, const Eight<T>& eight) {
            const std::int32_t at = held_rows.first_of(slot);
            if (held_rows.has(slot)) store_eight(of_row + at, gradient.of(eight, at));
        });
        held_rows.send_for(row_of(row + std::int64_t{rows_held} * gridDim.x), held);
        held = held + 1 == rows_held ? 0 : held + 1;
    }
}
static_assert(warps == 32);

/// Whether the kernel was started: so many rows fit into a block's shared memory.
template <class T, int rows_held>
bool start(const Launch& launch, const CrossEntropyLoss& op, int most_shared_bytes) {
    const std::int64_t count = op.gradient.logits.size(0);
    const std::int64_t slots = ceil_div(op.gradient.logits.size(1) / 8, threads);
    const std::int64_t bytes = rows_held * slots * threads * 16;
    if (bytes > most_shared_bytes) return false;
    const auto kernel = losses_and_gradients<T, rows_held>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "cross_entropy_loss: shared memory");
    kernel<<<std::min<std::int64_t>(count, launch.multiprocessors), threads, bytes, launch.stream>>>(
        elements<T>(op.gradient.logits), loss_rows_of(op.gradient), statistics_of(op.statistics), count);
    check_launch("cross_entropy_loss");
    return true;
}

/// With less than two rows at a time, memory would stand still while a block computes: the two steps are as
/// fast then.
template <class T>
bool start_in_one_pass(const Launch& launch, const CrossEntropyLoss& op) {
    const int bytes = largest_shared_memory() - other_bytes;
    return start<T, 3>(launch, op, bytes) || start<T, 2>(launch, op, bytes);
}

}  // namespace

void cross_entropy_loss(const Launch& launch, const CrossEntropyLoss& op) {
    const Tensor& logits = op.gradient.logits;
    if (logits.size(0) == 0) return;
    const bool plain = op.gradient.smoothing == 0 && !op.statistics.logit_sum && eights_fit(logits);
    if (plain && logits.dtype() == DType::bf16 && start_in_one_pass<bfloat_t>(launch, op)) return;
    if (plain && logits.dtype() == DType::f16 && start_in_one_pass<half_t>(launch, op)) return;
    cross_entropy_statistics(launch, op.statistics);
    cross_entropy_gradient(launch, op.gradient);
}

}  // namespace drover::cuda
