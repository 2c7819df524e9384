#pragma once

#include <type_traits>

#include "backend/cuda/kernels/block_order.cuh"
#include "backend/cuda/kernels/eight_elements.cuh"

/// The elements of a matrix's rows in groups: eight of them, or one where rows are not aligned. Groups are
/// numbered through all rows in 32 bits. A block has `threads_of_groups` threads with several groups each.
namespace drover::cuda {

inline constexpr int threads_of_groups = 256;

template <class T, bool wide>
using Group = std::conditional_t<wide, Eight<T>, T>;

template <class T, bool wide>
__device__ Group<T, wide> load_group(const T* from) {
    if constexpr (wide)
        return load_eight(from);
    else
        return *from;
}
/// Read once: does not stay in the caches.
template <class T, bool wide>
__device__ Group<T, wide> load_group_streaming(const T* from) {
    if constexpr (wide)
        return load_eight_streaming(from);
    else
        return *from;
}

/// The elements of a group, in fp32.
template <bool wide>
inline constexpr int group_size = wide ? 8 : 1;

template <class T>
__device__ inline void group_to_floats(const Eight<T>& group, float (&values)[8]) {
    to_floats(group, values);
}
template <class T>
__device__ inline void group_to_floats(const T& group, float (&values)[1]) {
    values[0] = to_float(group);
}
template <class T>
__device__ inline void store_group(T* to, const float (&values)[8]) {
    store_eight(to, to_eight<T>(values));
}
template <class T>
__device__ inline void store_group(T* to, const float (&values)[1]) {
    *to = from_float<T>(values[0]);
}

/// How many groups there are, in a row and in all.
struct RowGroups {
    std::uint32_t in_row, count;

    RowGroups(std::int64_t rows, std::int64_t width, bool wide)
        : in_row(static_cast<std::uint32_t>(wide ? width / 8 : width)),
          count(static_cast<std::uint32_t>(rows * in_row)) {
        require(
            width <= UINT32_MAX && rows * (wide ? width / 8 : width) < (std::int64_t{1} << 32) - (1 << 16),
            "more elements than a kernel counts");
    }

    /// Blocks whose threads have `each` groups.
    std::int64_t blocks(int each) const { return ceil_div(count, threads_of_groups * each); }

    /// A thread's i-th group of `each`, and whether there is one.
    __device__ std::uint32_t group(int i, int each) const {
        return block_from_the_end() * (threads_of_groups * each) + i * threads_of_groups + threadIdx.x;
    }

    struct Place {
        std::int64_t row, column;
    };
    template <bool wide>
    __device__ Place place(std::uint32_t group) const {
        const std::uint32_t row = group / in_row;
        return {row, std::int64_t{group - row * in_row} * group_size<wide>};
    }
};

/// A matrix whose rows may be strided, at the places of groups.
template <class T>
struct RowMatrix {
    T* data;
    std::int64_t stride;

    explicit RowMatrix(const Tensor& tensor)
        : data(elements<T>(tensor)), stride(tensor ? tensor.stride(0) : 0) {}
    __device__ T* at(RowGroups::Place place) const { return data + place.row * stride + place.column; }
};

}  // namespace drover::cuda
