#include "backend/cuda/kernels/shared_memory.cuh"

/// A counting sort that keeps the order of slots: counts each expert in each chunk of slots, derives where
/// the chunk's slots of an expert go, and then where each slot of the chunk goes.
namespace drover::cuda {
namespace {

/// Slots of a block at most, one per thread. Where counts of so many experts do not fit its shared memory, it
/// has fewer.
constexpr int sorted_chunk = 1024;

/// counts[chunk][expert]
__global__ void __launch_bounds__(sorted_chunk)
    count_experts(const std::int32_t* expert_of, std::int64_t slots, int experts, std::int32_t* counts) {
    extern __shared__ std::int32_t count[];
    for (int e = threadIdx.x; e < experts; e += blockDim.x) count[e] = 0;
    __syncthreads();
    const std::int64_t slot = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (slot < slots) atomicAdd(&count[expert_of[slot]], 1);
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += blockDim.x)
        counts[static_cast<std::int64_t>(blockIdx.x) * experts + e] = count[e];
}

/// One block: computes the offsets, and replaces the counts by the first row of each chunk's slots of an
/// expert.
__global__ void __launch_bounds__(sorted_chunk)
    place_chunks(std::int32_t* counts, int chunks, int experts, std::int32_t* offsets) {
    extern __shared__ std::int32_t total[];
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        std::int32_t sum = 0;
#pragma unroll 8
        for (int c = 0; c < chunks; ++c) sum += counts[static_cast<std::int64_t>(c) * experts + e];
        total[e] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        std::int32_t sum = 0;
        for (int e = 0; e < experts; ++e) {
            offsets[e] = sum;
            const std::int32_t rows = total[e];
            total[e] = sum;
            sum += rows;
        }
        offsets[experts] = sum;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        std::int32_t row = total[e];
#pragma unroll 8
        for (int c = 0; c < chunks; ++c) {
            std::int32_t& at = counts[static_cast<std::int64_t>(c) * experts + e];
            const std::int32_t rows = at;
            at = row;
            row += rows;
        }
    }
}

__global__ void __launch_bounds__(sorted_chunk)
    place_slots(const std::int32_t* expert_of, std::int64_t slots, int experts,
                const std::int32_t* first_rows, std::int32_t* row_of_slot, std::int32_t* slot_of_row) {
    extern __shared__ std::int32_t
        of_warp[];  // [warps][experts]: slots of an expert in a warp, then in the warps before
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, sorting_warps = blockDim.x / 32;
    for (int i = threadIdx.x; i < sorting_warps * experts; i += blockDim.x) of_warp[i] = 0;
    __syncthreads();
    const std::int64_t slot = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int expert = slot < slots ? expert_of[slot] : -1;
    const unsigned same = __match_any_sync(0xFFFFFFFFu, expert);
    const int rank = __popc(same & ((1u << lane) - 1));
    if (expert >= 0 && rank == 0) of_warp[warp * experts + expert] = __popc(same);
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        std::int32_t sum = 0;
        for (int w = 0; w < sorting_warps; ++w) {
            const std::int32_t rows = of_warp[w * experts + e];
            of_warp[w * experts + e] = sum;
            sum += rows;
        }
    }
    __syncthreads();
    if (expert < 0) return;
    const std::int32_t row = first_rows[static_cast<std::int64_t>(blockIdx.x) * experts + expert] +
                             of_warp[warp * experts + expert] + rank;
    row_of_slot[slot] = row;
    slot_of_row[row] = static_cast<std::int32_t>(slot);
}

}  // namespace

void sort_by_expert(const Launch& launch, const SortByExpert& op) {
    const std::int64_t slots = op.experts.numel();
    const int experts = static_cast<int>(op.offsets.size(0)) - 1;
    if (slots == 0) {
        check(cudaMemsetAsync(op.offsets.raw(), 0, op.offsets.bytes(), launch.stream), "sort_by_expert");
        return;
    }
    const int of_experts = experts * static_cast<int>(sizeof(std::int32_t));
    int chunk = sorted_chunk;
    while (chunk > 32 && !shared_memory_fits(launch, std::int64_t{chunk / 32} * of_experts)) chunk /= 2;
    require(shared_memory_fits(launch, of_experts), "sort_by_expert: too many experts");
    const int of_warps = chunk / 32 * of_experts;
    const auto chunks = static_cast<unsigned>(ceil_div(slots, chunk));
    auto* counts = launch.scratch.take_array<std::int32_t>(static_cast<std::size_t>(chunks) * experts);
    const auto* expert_of = elements<const std::int32_t>(op.experts);
    reserve_shared_memory(count_experts, of_experts, "sort_by_expert");
    count_experts<<<chunks, chunk, of_experts, launch.stream>>>(expert_of, slots, experts, counts);
    reserve_shared_memory(place_chunks, of_experts, "sort_by_expert");
    place_chunks<<<1, sorted_chunk, of_experts, launch.stream>>>(counts, static_cast<int>(chunks), experts,
                                                                 elements<std::int32_t>(op.offsets));
    reserve_shared_memory(place_slots, of_warps, "sort_by_expert");
    place_slots<<<chunks, chunk, of_warps, launch.stream>>>(expert_of, slots, experts, counts,
                                                            elements<std::int32_t>(op.row_of_slot),
                                                            elements<std::int32_t>(op.slot_of_row));
    check_launch("sort_by_expert");
}

}  // namespace drover::cuda
