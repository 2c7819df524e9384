#pragma once

#include <cuda.h>

#include <cstring>

#include "backend/cuda/kernels/device_code.cuh"
#include "backend/cuda/kernels/hopper_operands.cuh"
#include "backend/cuda/kernels/tensor_map.h"

/// src/backend/cuda/kernels/hopper.cuh for the emulated GPU: the same functions.
namespace drover::cuda {

inline std::uint32_t shared_address(const void* pointer) {
    return emulated::shared_address(pointer);
}
inline int same_in_warp(unsigned value) {
    return static_cast<int>(value);
}
inline unsigned char* aligned_shared_memory() {
    return emulated::shared_memory();
}

inline void barrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
    emulated::barrier_init(barrier, arrivals);
}
inline void barrier_init_fence() {}
inline void barrier_arrive(std::uint64_t* barrier) {
    emulated::barrier_arrive(barrier, 0);
}
inline void barrier_arrive_expecting(std::uint64_t* barrier, std::uint32_t bytes) {
    emulated::barrier_arrive(barrier, bytes);
}
inline void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
    emulated::barrier_wait(barrier, parity);
}
template <int number, int threads>
void meet() {
    emulated::meet(number, threads);
}

inline void publish(int* to, int value) {
    *to = value;
}
inline void wait_until_published(const int* from, int value) {
    emulated::wait_until([&] { return *from == value; });
}

inline void order_shared_with_copies() {}
inline void order_with_copies() {}

/// What a CUtensorMap holds here.
struct EmulatedMap {
    TensorMapShape shape;
    std::int64_t element_bytes;
};
static_assert(sizeof(EmulatedMap) <= sizeof(CUtensorMap));

inline CUtensorMap emulated_map(std::int64_t element_bytes, const TensorMapShape& shape) {
    CUtensorMap map{};
    const EmulatedMap own{shape, element_bytes};
    std::memcpy(&map, &own, sizeof own);
    return map;
}

inline void load_box(void* to, const CUtensorMap& map, int x, int y, int z, std::uint64_t* barrier) {
    EmulatedMap from;
    std::memcpy(&from, &map, sizeof from);
    const TensorMapShape& shape = from.shape;
    const std::int64_t row_bytes = shape.box[0] * from.element_bytes;
    if (row_bytes != 128) throw std::logic_error("a box whose rows have not 128 bytes");
    const std::uint32_t start = shared_address(to);
    if (start % 1024 != 0) throw std::logic_error("a box that does not begin at a multiple of 1024");
    auto* const shared = static_cast<unsigned char*>(to);
    emulated::load(barrier, static_cast<std::uint32_t>(row_bytes * shape.box[1]), [=] {
        for (std::int64_t row = 0; row < shape.box[1]; ++row)
            for (std::int64_t i = 0; i < shape.box[0]; ++i) {
                unsigned char* const element =
                    shared + exchanged_place(static_cast<std::uint32_t>(row),
                                             static_cast<std::uint32_t>(i * from.element_bytes));
                const std::int64_t at_x = x + i, at_y = y + row;
                if (at_x < 0 || at_x >= shape.sizes[0] || at_y < 0 || at_y >= shape.sizes[1] || z < 0 ||
                    z >= shape.sizes[2])
                    std::memset(element, 0, static_cast<std::size_t>(from.element_bytes));
                else
                    std::memcpy(element,
                                static_cast<const unsigned char*>(shape.start) + at_x * from.element_bytes +
                                    at_y * shape.byte_strides[0] + z * shape.byte_strides[1],
                                static_cast<std::size_t>(from.element_bytes));
            }
    });
}
inline void prefetch_map(const CUtensorMap&) {}

inline void require_multiple_of_16(const void* place, std::uint32_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(place) % 16 != 0 || bytes % 16 != 0)
        throw std::logic_error("a copy whose place or size is no multiple of 16");
}
inline void load_bytes(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
    require_multiple_of_16(from, bytes);
    emulated::load(barrier, bytes, [=] { std::memcpy(to, from, bytes); });
}
inline void store_bytes(void* to, const void* from, std::uint32_t bytes) {
    require_multiple_of_16(to, bytes);
    emulated::store([=] {
        std::vector<unsigned char> read(bytes);
        std::memcpy(read.data(), from, bytes);
        return [=] { std::memcpy(to, read.data(), bytes); };
    });
}
inline void add_floats(float* to, const void* from, std::uint32_t bytes) {
    require_multiple_of_16(to, bytes);
    emulated::store([=] {
        std::vector<float> read(bytes / sizeof(float));
        std::memcpy(read.data(), from, bytes);
        return [=] {
            for (std::size_t i = 0; i < read.size(); ++i) to[i] += read[i];
        };
    });
}
inline void stores_commit() {
    emulated::stores_commit();
}
inline void stores_wait_until_read() {
    emulated::stores_wait(false);
}
inline void stores_wait_until_written() {
    emulated::stores_wait(true);
}

inline void store_matrices(void* place, const std::uint32_t (&word)[4]) {
    if (shared_address(place) % 16 != 0)
        throw std::logic_error("a row that does not begin at a multiple of 16");
    unsigned char* places[32];
    emulated::exchange_in_warp(&place, places, sizeof place);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned matrix = 0; matrix < 4; ++matrix)
        std::memcpy(places[8 * matrix + lane / 4] + lane % 4 * 4, &word[matrix], 4);
}

template <int count>
void take_registers() {}
template <int count>
void give_registers() {}

inline std::uint64_t as_new(std::uint64_t x) {
    return x;
}

template <Contiguous contiguous>
std::uint64_t operand_at(const void* start, std::uint32_t block_bytes) {
    return operand_place<contiguous>(shared_address(start), block_bytes);
}

inline void products_begin() {}
inline void products_commit() {
    emulated::products_commit();
}
template <int count>
void products_wait() {
    emulated::products_wait(count);
}
template <int count>
void products_are_in(float (&)[count]) {}

template <class T>
float element_to_float(const void* element) {
    T value;
    std::memcpy(&value, element, sizeof value);
    return to_float(value);
}
template <class T, int columns, Contiguous contiguous_a, Contiguous contiguous_b>
void multiply_64_16(float (&sum)[columns / 2], std::uint64_t a, std::uint64_t b, bool add) {
    emulated::multiply({.columns = columns,
                        .a_breadth = contiguous_a == Contiguous::breadth,
                        .b_breadth = contiguous_b == Contiguous::breadth,
                        .a = a,
                        .b = b,
                        .a_registers = nullptr,
                        .add = add,
                        .to_float = element_to_float<T>,
                        .sum = sum});
}
template <class T, int columns, Contiguous contiguous_b>
void multiply_64_16(float (&sum)[columns / 2], const std::uint32_t (&a)[4], std::uint64_t b) {
    emulated::multiply({.columns = columns,
                        .a_breadth = false,
                        .b_breadth = contiguous_b == Contiguous::breadth,
                        .a = 0,
                        .b = b,
                        .a_registers = a,
                        .add = true,
                        .to_float = element_to_float<T>,
                        .sum = sum});
}

}  // namespace drover::cuda
