#pragma once

#include "backend/cuda/kernels/eight_elements.cuh"

/// Elements whose type is known when a kernel is compiled, or only when it runs: `Any`, f32, bf16 or f16
/// given by a DType. One kernel then serves tensors of all types, and specialised ones the types that matter
/// for speed.
namespace drover::cuda {

struct Any {};

template <class T>
struct StoredAs {
    using Registers = Eight<T>;
};
template <>
struct StoredAs<Any> {
    using Registers = Eight<float>;  ///< with 16-bit types only the first half is used
};
template <class T>
using Registers = typename StoredAs<T>::Registers;

template <class T>
inline constexpr bool is_any = std::is_same_v<T, Any>;

template <class T>
__device__ inline Registers<T> load_eight_of(const void* data, DType dtype, std::int64_t at) {
    if constexpr (is_any<T>) {
        Registers<T> eight;
        if (dtype == DType::f32) return load_eight_streaming(static_cast<const float*>(data) + at);
        eight.bits[0] = __ldcs(reinterpret_cast<const uint4*>(static_cast<const half_t*>(data) + at));
        return eight;
    } else {
        return load_eight_streaming(static_cast<const T*>(data) + at);
    }
}

template <class T>
__device__ inline void to_floats_of(const Registers<T>& eight, DType dtype, float (&values)[8]) {
    if constexpr (is_any<T>) {
        if (dtype == DType::f32)
            to_floats_by_element(eight, values);
        else if (dtype == DType::bf16)
            to_floats_by_element(Eight<bfloat_t>{{eight.bits[0]}}, values);
        else
            to_floats_by_element(Eight<half_t>{{eight.bits[0]}}, values);
    } else {
        to_floats_by_element(eight, values);
    }
}

template <class T>
__device__ inline void store_eight_of(void* data, DType dtype, std::int64_t at, const float (&values)[8]) {
    if constexpr (is_any<T>) {
        if (dtype == DType::f32)
            store_eight_of<float>(data, dtype, at, values);
        else if (dtype == DType::bf16)
            store_eight_of<bfloat_t>(data, dtype, at, values);
        else
            store_eight_of<half_t>(data, dtype, at, values);
    } else {
        store_eight_streaming(static_cast<T*>(data) + at, to_eight<T>(values));
    }
}

__device__ inline float load_one_of(const void* data, DType dtype, std::int64_t at) {
    if (dtype == DType::f32) return static_cast<const float*>(data)[at];
    if (dtype == DType::bf16) return to_float(static_cast<const bfloat_t*>(data)[at]);
    return to_float(static_cast<const half_t*>(data)[at]);
}

__device__ inline void store_one_of(void* data, DType dtype, std::int64_t at, float value) {
    if (dtype == DType::f32)
        static_cast<float*>(data)[at] = value;
    else if (dtype == DType::bf16)
        static_cast<bfloat_t*>(data)[at] = from_float<bfloat_t>(value);
    else
        static_cast<half_t*>(data)[at] = from_float<half_t>(value);
}

}  // namespace drover::cuda
