#pragma once

#include <cuda.h>

#include "backend/cuda/kernels/device_code.cuh"

/// Features of Hopper only (sm_90a): barriers in shared memory that count bytes, copies of boxes of a tensor
/// by the copy engine, and products of a warpgroup (128 threads) whose operands lie in shared memory.
namespace drover::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ----------------------------------------------------------------------------------------------------
// barriers

/// A phase ends when `arrivals` threads have arrived and all bytes that they announced have arrived.
__device__ inline void barrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}
/// Makes initialised barriers visible to the copy engine.
__device__ inline void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(std::uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_arrive_expecting(std::uint64_t* barrier, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}
/// Waits for the end of the phase with this parity (the first phase has parity 0). A barrier that is in its
/// first phase counts as having ended one of parity 1.
__device__ inline void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
    std::uint32_t ended = 0;
    while (!ended)
        asm volatile(
            "{\n"
            ".reg .pred ended;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
            "selp.b32 %0, 1, 0, ended;\n"
            "}\n"
            : "=r"(ended)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
}

/// A position in a ring of `stages` buffers.
template <int stages>
struct RingPlace {
    int stage = 0;
    std::uint32_t parity = 0;

    __device__ void next() {
        if (++stage < stages) return;
        stage = 0;
        parity ^= 1;
    }
};

// ------------------------------------------------------------------------------------------------------
// copies

/// Copies the box at (x, y, z) of a tensor to shared memory; what lies outside the tensor becomes zero. The
/// barrier counts the bytes of the whole box.
__device__ inline void load_box(void* to, const CUtensorMap& map, int x, int y, int z,
                                std::uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
        "%4}], "
        "[%5];" ::"r"(shared_address(to)),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
        : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ----------------------------------------------------------------------------------------------------
// products

/// Registers per thread of this warpgroup from now on.
template <int count>
__device__ inline void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

/// Which dimension of an operand is contiguous: the one that is summed over, or the other.
enum class Contiguous { depth, breadth };

/// An operand's place in shared memory, where rows of 128 bytes lie in groups of eight with their 16-byte
/// pieces exchanged as the copy engine does it (SWIZZLE_128B). Groups of rows follow each other; with
/// Contiguous::breadth, which only 16-bit elements have, a row has 64 elements of the breadth, and the next
/// 64 begin `block_bytes` later.
template <Contiguous contiguous>
__device__ inline std::uint64_t operand_at(const void* start, std::uint32_t block_bytes) {
    constexpr std::uint64_t group_bytes = 1024, exchanged_in_128_bytes = 1;
    const std::uint64_t blocks = contiguous == Contiguous::depth ? 1 : block_bytes >> 4;
    return (shared_address(start) & 0x3FFFFu) >> 4 | blocks << 16 | group_bytes >> 4 << 32 |
           exchanged_in_128_bytes << 62;
}
/// How far an operand's place advances from one product to the next, of 16 elements of 16 bits in depth, or
/// of 32 FP8 numbers.
template <Contiguous contiguous>
inline constexpr std::uint64_t product_step = (contiguous == Contiguous::depth ? 32 : 16 * 128) >> 4;

/// Registers and shared memory that were written before may be read by products from here on.
__device__ inline void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `count` of the committed groups are in flight.
template <int count>
__device__ inline void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(count) : "memory");
}

/// Keeps the compiler from using sums before the preceding wait.
template <int count>
__device__ inline void products_are_in(float (&sum)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

#define DROVER_FLOATS_4(at) "+f"(sum[at]), "+f"(sum[at + 1]), "+f"(sum[at + 2]), "+f"(sum[at + 3])
#define DROVER_FLOATS_16(at) \
    DROVER_FLOATS_4(at), DROVER_FLOATS_4(at + 4), DROVER_FLOATS_4(at + 8), DROVER_FLOATS_4(at + 12)
#define DROVER_FLOATS_64(at) \
    DROVER_FLOATS_16(at), DROVER_FLOATS_16(at + 16), DROVER_FLOATS_16(at + 32), DROVER_FLOATS_16(at + 48)
#define DROVER_PLACES_64                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define DROVER_PLACES_128                                                                          \
    DROVER_PLACES_64                                                                               \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
/// `adds` is the operand that says whether the sums are added to, as text.
#define DROVER_WGMMA(shape_and_types, places, adds, operands)                  \
    "{\n"                                                                      \
    ".reg .pred adds;\n"                                                       \
    "setp.ne.b32 adds, " adds                                                  \
    ", 0;\n"                                                                   \
    "wgmma.mma_async.sync.aligned." shape_and_types " {" places "}, " operands \
    ";\n"                                                                      \
    "}\n"
#define DROVER_WGMMA_64_256_16(type)                                                                \
    asm volatile(DROVER_WGMMA("m64n256k16.f32." type "." type, DROVER_PLACES_128, "%130",           \
                              "%128, %129, adds, 1, 1, %131, %132")                                 \
                 : DROVER_FLOATS_64(0), DROVER_FLOATS_64(64)                                        \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(contiguous_a)), \
                   "n"(static_cast<int>(contiguous_b)))

/// sum (+)= a [64,16] · b [16,256], by the warpgroup. Thread t has in sum[4i + 2h + j] the element of row
/// 16 · (t / 32) + t % 32 / 4 + 8h and column 8i + 2 · (t % 4) + j.
template <class T, Contiguous contiguous_a, Contiguous contiguous_b>
__device__ inline void multiply_64_256_16(float (&sum)[128], std::uint64_t a, std::uint64_t b, bool add) {
    if constexpr (std::is_same_v<T, bfloat_t>)
        DROVER_WGMMA_64_256_16("bf16");
    else
        DROVER_WGMMA_64_256_16("f16");
}

/// The same with FP8 operands, a [64,32] · b [32,256]; both are contiguous in depth. Sums have some 13 bits
/// of mantissa.
__device__ inline void multiply_64_256_32(float (&sum)[128], std::uint64_t a, std::uint64_t b, bool add) {
    asm volatile(DROVER_WGMMA("m64n256k32.f32.e4m3.e4m3", DROVER_PLACES_128, "%130", "%128, %129, adds, 1, 1")
                 : DROVER_FLOATS_64(0), DROVER_FLOATS_64(64)
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
/// a [64,32] · b [32,128]
__device__ inline void multiply_64_128_32(float (&sum)[64], std::uint64_t a, std::uint64_t b, bool add) {
    asm volatile(DROVER_WGMMA("m64n128k32.f32.e4m3.e4m3", DROVER_PLACES_64, "%66", "%64, %65, adds, 1, 1")
                 : DROVER_FLOATS_64(0)
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef DROVER_WGMMA_64_256_16
#undef DROVER_WGMMA
#undef DROVER_PLACES_128
#undef DROVER_PLACES_64
#undef DROVER_FLOATS_64
#undef DROVER_FLOATS_16
#undef DROVER_FLOATS_4

}  // namespace drover::cuda
