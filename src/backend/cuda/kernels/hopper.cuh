#pragma once

#include <cuda.h>

#include "backend/cuda/kernels/device_code.cuh"
#include "backend/cuda/kernels/hopper_operands.cuh"

/// Features of Hopper only (sm_90a): barriers in shared memory that count bytes, copies of boxes of a tensor
/// by the copy engine, and products of a warpgroup (128 threads) whose operands lie in shared memory.
namespace drover::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// A value that all lanes of the warp have, in a form in which the compiler knows it: addresses made of it
/// then need no registers of each thread.
__device__ inline int same_in_warp(int value) {
    return __shfl_sync(0xFFFFFFFFu, value, 0);
}

/// The block's dynamic shared memory from the first multiple of 1024 on, which operands have to begin at. So
/// as many bytes more have to be asked for.
__device__ inline unsigned char* aligned_shared_memory() {
    extern __shared__ unsigned char memory[];
    return memory + (1024 - shared_address(memory) % 1024) % 1024;
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

/// Waits until `threads` threads of the block, whole warps, have come to barrier `number` (1 to 15).
template <int number, int threads>
__device__ inline void meet() {
    asm volatile("bar.sync %0, %1;" ::"n"(number), "n"(threads) : "memory");
}

// ----------------------------------------------------------------------------------------------------
// one block waits for another

/// What another block published, and with it all that it had written before.
__device__ inline int load_published(const int* from) {
    int value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ inline void publish(int* to, int value) {
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/// Waits until another block has published `value`, which takes about a microsecond to be seen.
__device__ inline void wait_until_published(const int* from, int value) {
    while (load_published(from) != value) __nanosleep(20);
}

// ----------------------------------------------------------------------------------------------------
// copies

/// Between ordinary reads and writes of shared memory and those of the copy engine and of products, in this
/// thread's order.
__device__ inline void order_shared_with_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The same for memory, which takes much longer.
__device__ inline void order_with_copies() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

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
/// Copies a piece of memory to shared memory. Places and bytes are multiples of 16.
__device__ inline void load_bytes(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
/// Copies a piece of shared memory to memory, or adds it there, as fp32.
__device__ inline void store_bytes(void* to, const void* from, std::uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}
__device__ inline void add_floats(float* to, const void* from, std::uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}
__device__ inline void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until what this thread committed has been read from shared memory, or also been written.
__device__ inline void stores_wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void stores_wait_until_written() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// A warp stores four matrices of 8 × 8 elements of 16 bits: thread t has in word[m] the elements of row t /
/// 4 of matrix m, columns 2 · (t % 4) and the next. Its own place is that of row t % 8 of matrix t / 8, 16
/// bytes.
__device__ inline void store_matrices(void* place, const std::uint32_t (&word)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(place)),
        "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
        : "memory");
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

/// x, as something new to the compiler: it computes what depends on it here, instead of keeping it in registers
/// from one step to the next.
__device__ inline std::uint64_t as_new(std::uint64_t x) {
    asm volatile("" : "+l"(x));
    return x;
}

template <Contiguous contiguous>
__device__ inline std::uint64_t operand_at(const void* start, std::uint32_t block_bytes) {
    return operand_place<contiguous>(shared_address(start), block_bytes);
}

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
#define DROVER_FLOATS_32(at) DROVER_FLOATS_16(at), DROVER_FLOATS_16(at + 16)
#define DROVER_FLOATS_64(at) \
    DROVER_FLOATS_16(at), DROVER_FLOATS_16(at + 16), DROVER_FLOATS_16(at + 32), DROVER_FLOATS_16(at + 48)
#define DROVER_PLACES_32                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define DROVER_PLACES_64                                                                 \
    DROVER_PLACES_32                                                                     \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
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

/// sum (+)= a [64,16] · b [16,columns] of 64 or 128 columns, by the warpgroup; sum is laid out as above.
template <class T, int columns, Contiguous contiguous_a, Contiguous contiguous_b>
__device__ inline void multiply_64_16(float (&sum)[columns / 2], std::uint64_t a, std::uint64_t b, bool add) {
    static_assert(columns == 64 || columns == 128);
#define DROVER_WGMMA_SHARED(shape_and_type, type, places, sums, a_at, b_at, add_at, ta, tb)               \
    asm volatile(                                                                                         \
        DROVER_WGMMA(shape_and_type "." type, places, add_at, a_at ", " b_at ", adds, 1, 1, " ta ", " tb) \
        : sums                                                                                            \
        : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(contiguous_a)),                \
          "n"(static_cast<int>(contiguous_b)))
#define DROVER_WGMMA_SHARED_64(type)                                                                      \
    DROVER_WGMMA_SHARED("m64n64k16.f32." type, type, DROVER_PLACES_32, DROVER_FLOATS_32(0), "%32", "%33", \
                        "%34", "%35", "%36")
#define DROVER_WGMMA_SHARED_128(type)                                                                      \
    DROVER_WGMMA_SHARED("m64n128k16.f32." type, type, DROVER_PLACES_64, DROVER_FLOATS_64(0), "%64", "%65", \
                        "%66", "%67", "%68")
    if constexpr (columns == 64 && std::is_same_v<T, bfloat_t>)
        DROVER_WGMMA_SHARED_64("bf16");
    else if constexpr (columns == 64)
        DROVER_WGMMA_SHARED_64("f16");
    else if constexpr (std::is_same_v<T, bfloat_t>)
        DROVER_WGMMA_SHARED_128("bf16");
    else
        DROVER_WGMMA_SHARED_128("f16");
#undef DROVER_WGMMA_SHARED_128
#undef DROVER_WGMMA_SHARED_64
#undef DROVER_WGMMA_SHARED
}

/// The same with a in registers: thread t has in a[2 · k + h] the pair of elements of row
/// 16 · (t / 32) + t % 32 / 4 + 8h and columns 8k + 2 · (t % 4) and the next. That is how sums lie, rounded:
/// a product's sums are the a of another. The registers must not change before the products are in.
template <class T, int columns, Contiguous contiguous_b>
__device__ inline void multiply_64_16(float (&sum)[columns / 2], const std::uint32_t (&a)[4],
                                      std::uint64_t b) {
    static_assert(columns == 64 || columns == 128);
#define DROVER_WGMMA_REGISTERS(shape_and_type, type, places, sums, operands)                              \
    asm volatile("wgmma.mma_async.sync.aligned." shape_and_type "." type " {" places "}, " operands ";\n" \
                 : sums                                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(static_cast<int>(contiguous_b)))
#define DROVER_WGMMA_REGISTERS_64(type)                                                        \
    DROVER_WGMMA_REGISTERS("m64n64k16.f32." type, type, DROVER_PLACES_32, DROVER_FLOATS_32(0), \
                           "{%32, %33, %34, %35}, %36, 1, 1, 1, %37")
#define DROVER_WGMMA_REGISTERS_128(type)                                                        \
    DROVER_WGMMA_REGISTERS("m64n128k16.f32." type, type, DROVER_PLACES_64, DROVER_FLOATS_64(0), \
                           "{%64, %65, %66, %67}, %68, 1, 1, 1, %69")
    if constexpr (columns == 64 && std::is_same_v<T, bfloat_t>)
        DROVER_WGMMA_REGISTERS_64("bf16");
    else if constexpr (columns == 64)
        DROVER_WGMMA_REGISTERS_64("f16");
    else if constexpr (std::is_same_v<T, bfloat_t>)
        DROVER_WGMMA_REGISTERS_128("bf16");
    else
        DROVER_WGMMA_REGISTERS_128("f16");
#undef DROVER_WGMMA_REGISTERS_128
#undef DROVER_WGMMA_REGISTERS_64
#undef DROVER_WGMMA_REGISTERS
}

#undef DROVER_WGMMA_64_256_16
#undef DROVER_WGMMA
#undef DROVER_PLACES_128
#undef DROVER_PLACES_64
#undef DROVER_PLACES_32
#undef DROVER_FLOATS_64
#undef DROVER_FLOATS_32
#undef DROVER_FLOATS_16
#undef DROVER_FLOATS_4

}  // namespace drover::cuda
