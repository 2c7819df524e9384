#pragma once

#include <type_traits>

#include "backend/cuda/kernels/device_code.cuh"

/// Eight elements at a time, worked on in fp32 whatever their type: one 16-byte access for 16-bit types, two
/// for fp32. Loaded values stay unconverted until they are used, so that several loads can be in flight in
/// few registers.
namespace drover::cuda {

template <class T>
struct Eight {
    uint4 bits[sizeof(T) / 2];
};

template <class T>
__device__ inline Eight<T> load_eight(const T* from) {
    Eight<T> eight;
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i) eight.bits[i] = reinterpret_cast<const uint4*>(from)[i];
    return eight;
}
/// Read once: does not stay in the caches.
template <class T>
__device__ inline Eight<T> load_eight_streaming(const T* from) {
    Eight<T> eight;
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i)
        eight.bits[i] = __ldcs(reinterpret_cast<const uint4*>(from) + i);
    return eight;
}
template <class T>
__device__ inline void store_eight(T* to, const Eight<T>& eight) {
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i) reinterpret_cast<uint4*>(to)[i] = eight.bits[i];
}
/// Not read again soon.
template <class T>
__device__ inline void store_eight_streaming(T* to, const Eight<T>& eight) {
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 2); ++i) __stcs(reinterpret_cast<uint4*>(to) + i, eight.bits[i]);
}

/// Like to_floats(), for kernels that hold many eights at once. With to_floats() the AdamW update spills
/// registers; with this it does not where it matters.
template <class T>
__device__ inline void to_floats_by_element(const Eight<T>& eight, float (&values)[8]) {
    const T* elements = reinterpret_cast<const T*>(&eight);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = to_float(elements[i]);
}

template <class T>
__device__ inline void to_floats(const Eight<T>& eight, float (&values)[8]) {
    if constexpr (std::is_same_v<T, bfloat_t>) {
        // A bf16 is the upper half of its fp32. Extracted from the word, it needs one instruction and no
        // register until it is used. Accessed as an element, the compiler splits the words as soon as they
        // arrive.
        const std::uint32_t words[4] = {eight.bits[0].x, eight.bits[0].y, eight.bits[0].z, eight.bits[0].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            values[2 * i] = __uint_as_float(words[i] << 16);
            values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
        }
    } else {
        to_floats_by_element(eight, values);
    }
}
/// Rounds to nearest even.
template <class T>
__device__ inline Eight<T> to_eight(const float (&values)[8]) {
    Eight<T> eight;
    T* elements = reinterpret_cast<T*>(&eight);
#pragma unroll
    for (int i = 0; i < 8; ++i) elements[i] = from_float<T>(values[i]);
    return eight;
}

/// Whether eights of `tensor`'s elements are aligned: in rows of `columns` that are `stride` apart.
inline bool eights_fit(const Tensor& tensor, std::int64_t columns, std::int64_t stride) {
    const auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype()));
    return reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0 && columns % 8 == 0 &&
           stride * bytes % 16 == 0;
}
/// The same for a matrix; an absent one fits.
inline bool eights_fit(const Tensor& matrix) {
    return !matrix || eights_fit(matrix, matrix.size(1), matrix.stride(0));
}

}  // namespace drover::cuda
