#include <algorithm>

#include "backend/cuda/kernels/cross_entropy_rows.cuh"

// A block keeps a row of logits: every thread its own eights of it, most in shared memory and the last ones
// in registers. So the logits come from memory once, and nobody waits for another thread's part of a row but
// for the statistics. As soon as a thread has replaced some of its eights, those of the block's next row are
// on their way to the same place.

namespace drover::cuda {
namespace {

/// Eights of a thread are sent for in so many groups, which are waited for one by one.
constexpr int groups = 2;

__device__ inline void copy_16_bytes(void* to_shared, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared))),
                 "l"(from)
                 : "memory");
}
__device__ inline void close_group_of_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Of the copies of a row, waits for those of `group` and the ones before. Called with a constant.
__device__ inline void wait_for_copies(int group) {
    static_assert(groups == 2);
    if (group == 0) asm volatile("cp.async.wait_group 1;" ::: "memory");
    if (group == 1) asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/// A thread's eights of the rows that its block goes through. Number `slot` holds the elements from
/// (slot · threads + thread) · 8 on; the last `in_registers` slots are in registers.
template <class T, int threads, int in_registers>
struct HeldRow {
    static_assert(sizeof(T) == 2);
    uint4* shared;        ///< [slots − in_registers][threads]
    std::int32_t eights;  ///< of a row
    std::int32_t in_shared;
    Eight<T> registers[in_registers > 0 ? in_registers : 1];

    __device__ std::int32_t eight(std::int32_t slot) const {
        return slot * threads + static_cast<std::int32_t>(threadIdx.x);
    }
    __device__ bool has(std::int32_t slot) const { return eight(slot) < eights; }
    __device__ Eight<T> read(std::int32_t slot) const { return {{shared[eight(slot)]}}; }

    /// What no row reaches is −∞ for good: it changes neither maximum nor sum.
    __device__ void fill_rest() {
        const std::uint32_t pair = std::is_same_v<T, bfloat_t> ? 0xFF80FF80u : 0xFC00FC00u;
        const uint4 lowest_eight = make_uint4(pair, pair, pair, pair);
        for (std::int32_t slot = 0; slot < in_shared; ++slot)
            if (!has(slot)) shared[eight(slot)] = lowest_eight;
#pragma unroll
        for (int i = 0; i < in_registers; ++i) registers[i].bits[0] = lowest_eight;
    }

    /// Slots are gone through from the last to the first. Group g has [first(g + 1), first(g)) of those in
    /// shared memory.
    __device__ std::int32_t first(int group) const {
        return in_shared * (groups - group) / groups;
    }

    __device__ void send_for(const T* row, int group) {
        for (std::int32_t slot = first(group) - 1; slot >= first(group + 1); --slot)
            if (has(slot)) copy_16_bytes(shared + eight(slot), row + eight(slot) * 8);
        close_group_of_copies();
    }
    __device__ void send_for_registers(const T* row) {
#pragma unroll
        for (int i = 0; i < in_registers; ++i)
            if (has(in_shared + i)) registers[i] = load_eight_streaming(row + eight(in_shared + i) * 8);
    }

    /// Calls take(slot, eight) from the last slot to the first; before(group) and after(group) around the
    /// slots of a group.
    template <class Take, class Before, class After>
    __device__ void for_each(const Take& take, const Before& before, const After& after) {
#pragma unroll
        for (int i = in_registers - 1; i >= 0; --i) take(in_shared + i, registers[i]);
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            before(group);
#pragma unroll 4
            for (std::int32_t slot = first(group) - 1; slot >= first(group + 1); --slot)
                take(slot, read(slot));
            after(group);
        }
    }

    /// The first of this thread's elements in the slot that is `value`.
    __device__ std::int32_t find(float value, std::int32_t slot) const {
        Eight<T> eight_of_slot = slot < in_shared ? read(slot) : registers[0];
#pragma unroll
        for (int i = 1; i < in_registers; ++i)
            if (slot == in_shared + i) eight_of_slot = registers[i];
        const T* elements = reinterpret_cast<const T*>(&eight_of_slot);
        std::int32_t at = 0;
#pragma unroll
        for (int e = 7; e >= 0; --e)
            if (to_float(elements[e]) == value) at = e;
        return eight(slot) * 8 + at;
    }
};

__device__ inline void nothing(int) {}

/// A thread's share of each step over a row is followed by one meeting of the block: for the largest logit,
/// for the sum of the exponentials from there, and then everything is known.
template <class T, int threads, int in_registers, int blocks>
__global__ void __launch_bounds__(threads, blocks)
    losses_and_gradients(T* logits, const LossRows rows, const StatisticsOfRows results, std::int64_t count,
                         std::int32_t in_shared) {
    constexpr std::int32_t no_index = 0x7FFFFFFF;
    constexpr int warps = threads / 32;
    extern __shared__ uint4 shared[];
    __shared__ float maxima[warps], sums[warps];
    __shared__ std::int32_t first_of_largest;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) first_of_largest = no_index;

    HeldRow<T, threads, in_registers> held{
        .shared = shared, .eights = rows.width / 8, .in_shared = in_shared, .registers = {}};
    held.fill_rest();
    std::int64_t row = blockIdx.x;
    held.send_for_registers(logits + row * rows.stride);
    for (int group = 0; group < groups; ++group) held.send_for(logits + row * rows.stride, group);

    for (; row < count; row += gridDim.x) {
        T* const of_row = logits + row * rows.stride;
        const std::int32_t target = rows.target_of(row);
        // Read before anybody replaces it.
        const float target_logit = threadIdx.x == 0 && target >= 0 ? to_float(of_row[target]) : 0.f;

        float own_max = lowest();
        std::int32_t own_slot = 0;
        held.for_each(
            [&](std::int32_t slot, const Eight<T>& eight) {
                const Eight<T> single[1] = {eight};
                const float largest = largest_of(single);
                if (largest >= own_max) own_slot = slot;  // of equals the first of the row
                own_max = fmaxf(own_max, largest);
            },
            wait_for_copies, nothing);
        const float warps_max = warp_max(own_max);
        if (lane == 0) maxima[warp] = warps_max;
        __syncthreads();
        const float max = warp_max(maxima[lane % warps]);
        if (own_max == max && max != lowest()) atomicMin(&first_of_largest, held.find(own_max, own_slot));

        // A row of −∞ only has exponentials of zero: its share in a larger vocabulary.
        const ExponentialsFrom<T> exponential(max == lowest() ? 0.f : max);
        float sum = 0;
        held.for_each(
            [&](std::int32_t, const Eight<T>& eight) {
                float values[8];
                to_floats(eight, values);
#pragma unroll
                for (int e = 0; e < 8; ++e) values[e] = exponential(values[e]);
                sum += ((values[0] + values[1]) + (values[2] + values[3])) +
                       ((values[4] + values[5]) + (values[6] + values[7]));
            },
            nothing, nothing);
        sum = warp_sum(sum);
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        const float sum_exp =
            warp_sum(lane < warps ? sums[lane] : 0.f) * exponential.correction(max == lowest() ? 0.f : max);

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
        const bool goes_on = row + gridDim.x < count;
        const T* const next_row = of_row + (goes_on ? gridDim.x * rows.stride : 0);
        held.for_each(
            [&](std::int32_t slot, const Eight<T>& eight) {
                const std::int32_t at = held.eight(slot) * 8;
                if (held.has(slot)) store_eight(of_row + at, gradient.of(eight, at));
            },
            nothing,
            [&](int group) {
                if (!goes_on) return;
                if (group == 0) held.send_for_registers(next_row);
                held.send_for(next_row, group);
            });
    }
}

/// Starts the kernel if a block can keep a row in this way.
template <class T, int threads, int in_registers, int blocks>
bool start(const Launch& launch, const CrossEntropyLoss& op, int most_shared_bytes) {
    const std::int64_t slots = ceil_div(op.gradient.logits.size(1) / 8, threads);
    const std::int64_t in_shared = std::max<std::int64_t>(slots - in_registers, 0);
    const std::int64_t bytes = in_shared * threads * 16;
    if (bytes > most_shared_bytes) return false;
    const auto kernel = losses_and_gradients<T, threads, in_registers, blocks>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "cross_entropy_loss: shared memory");
    int resident = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, bytes),
          "cross_entropy_loss: blocks per multiprocessor");
    if (resident == 0) return false;
    const std::int64_t count = op.gradient.logits.size(0);
    const std::int64_t grid = std::min<std::int64_t>(count, std::int64_t{resident} * launch.multiprocessors);
    kernel<<<grid, threads, bytes, launch.stream>>>(elements<T>(op.gradient.logits),
                                                    loss_rows_of(op.gradient), statistics_of(op.statistics),
                                                    count, static_cast<std::int32_t>(in_shared));
    check_launch("cross_entropy_loss");
    return true;
}

/// Several small blocks on a multiprocessor, of which some read while others write, or else one large one.
template <class T>
bool start_in_one_pass(const Launch& launch, const CrossEntropyLoss& op) {
    int device = 0, shared_bytes = 0, bytes_per_block = 0;
    check(cudaGetDevice(&device), "cross_entropy_loss: device");
    check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
          "cross_entropy_loss: shared memory");
    check(cudaDeviceGetAttribute(&bytes_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cross_entropy_loss: shared memory of a block");
    // What a block has besides: the statistics of its warps, and a KiB of the system.
    constexpr int besides = 2048;
    return start<T, 512, 0, 3>(launch, op, shared_bytes / 2 - besides) ||
           start<T, 1024, 2, 1>(launch, op, bytes_per_block - besides);
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
