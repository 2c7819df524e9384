#pragma once

#include <cuda_pipeline_primitives.h>

#include "backend/cuda/kernels/eight_elements.cuh"

namespace drover::cuda {

/// One thread's places in shared memory for `held` eights of dy, residual and dresidual_out in `stages` rows:
/// the threads' 16-byte pieces are adjacent.
template <class Y, class R, int held, int threads>
struct Ring {
    static constexpr int of_dy = sizeof(Y) / 2, of_residual = sizeof(R) / 2, pieces = of_dy + 2 * of_residual;
    static constexpr int stage_bytes = held * pieces * threads * 16;
    static constexpr int room = 160 * 1024;
    static constexpr int stages = stage_bytes * 2 > room ? 1 : stage_bytes * 3 > room ? 2 : 3;
    static constexpr int bytes = stages * stage_bytes;

    uint4* mine;
    /// Fetched data is read once; evicting it first leaves the cache to what the next operation reads.
    std::uint64_t evict_first;

    __device__ explicit Ring(uint4* shared) : mine(shared + threadIdx.x) {
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
    }

    __device__ uint4* place(int stage, int i, int piece) const {
        return mine + ((stage * held + i) * pieces + piece) * threads;
    }
    template <class T>
    __device__ void fetch(uint4* to, const T* from) const {
#pragma unroll
        for (int i = 0; i < int(sizeof(T) / 2); ++i)
            asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                             static_cast<unsigned>(__cvta_generic_to_shared(to + i * threads))),
                         "l"(reinterpret_cast<const uint4*>(from) + i), "l"(evict_first)
                         : "memory");
    }
    template <class T>
    __device__ static Eight<T> fetched(const uint4* from) {
        Eight<T> eight;
#pragma unroll
        for (int i = 0; i < int(sizeof(T) / 2); ++i) eight.bits[i] = from[i * threads];
        return eight;
    }
};

}  // namespace drover::cuda
