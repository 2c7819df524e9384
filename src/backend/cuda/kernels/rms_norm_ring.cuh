#pragma once

#include <cuda_pipeline_primitives.h>

#include "backend/cuda/kernels/eight_elements.cuh"

namespace drover::cuda {

/// What a thread has in a stage of its ring, in pieces of 16 bytes for each eight elements.
template <class Y, class R>
struct RingPieces {
    static constexpr int of_dy = sizeof(Y) / 2, of_residual = sizeof(R) / 2, count = of_dy + 2 * of_residual;
};

/// As many stages as fit into `room` bytes, three at most; one, even where that does not fit.
template <class Y, class R, int held, int threads>
inline constexpr int stages_within(int room) {
    constexpr int stage_bytes = held * RingPieces<Y, R>::count * threads * 16;
    return stage_bytes * 2 > room ? 1 : stage_bytes * 3 > room ? 2 : 3;
}

/// One thread's places in shared memory for `held` eights of dy, residual and dresidual_out in as many rows
/// as there are stages: the threads' 16-byte pieces are adjacent.
template <class Y, class R, int held, int threads, int stages_>
struct Ring {
    static constexpr int of_dy = RingPieces<Y, R>::of_dy, of_residual = RingPieces<Y, R>::of_residual,
                         pieces = RingPieces<Y, R>::count;
    static constexpr int stages = stages_;
    static constexpr int bytes = stages * held * pieces * threads * 16;

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
