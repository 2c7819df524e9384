#include "comm/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "core/error.h"

namespace drover {
namespace {

/// The type in which elements of T are reduced.
template <class T>
struct accumulator_of {
    using type = T;
};
template <>
struct accumulator_of<bf16> {
    using type = float;
};
template <>
struct accumulator_of<f16> {
    using type = float;
};

/// Signed integers wrap around; computed as unsigned, because signed overflow is undefined.
template <class T>
T add(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        using Unsigned = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
        return a + b;
    }
}

/// A NaN on either side wins.
template <class T>
T larger(T a, T b) {
    return a > b || a != a ? a : b;
}

template <class T>
T smaller(T a, T b) {
    return a < b || a != a ? a : b;
}

template <class T, class Combine>
void reduce(std::span<const std::byte* const> sources, std::byte* to, std::int64_t count,
            const Combine& combine) {
    using Accumulator = typename accumulator_of<T>::type;
    constexpr std::int64_t block = 2048;  // stays in the first-level cache
    std::array<Accumulator, block> total;
    for (std::int64_t begin = 0; begin < count; begin += block) {
        const std::int64_t length = std::min(block, count - begin);
        const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
        for (std::int64_t i = 0; i < length; ++i) total[i] = static_cast<Accumulator>(first[i]);
        for (const std::byte* source : sources.subspan(1)) {
            const T* next = reinterpret_cast<const T*>(source) + begin;
            for (std::int64_t i = 0; i < length; ++i)
                total[i] = combine(total[i], static_cast<Accumulator>(next[i]));
        }
        T* out = reinterpret_cast<T*>(to) + begin;
        for (std::int64_t i = 0; i < length; ++i) out[i] = static_cast<T>(total[i]);
    }
}

template <class T>
void reduce(Reduction reduction, std::span<const std::byte* const> sources, std::byte* to,
            std::int64_t count) {
    switch (reduction) {
        case Reduction::sum:
            return reduce<T>(sources, to, count, [](auto a, auto b) { return add(a, b); });
        case Reduction::max:
            return reduce<T>(sources, to, count, [](auto a, auto b) { return larger(a, b); });
        case Reduction::min:
            return reduce<T>(sources, to, count, [](auto a, auto b) { return smaller(a, b); });
    }
}

}  // namespace

void reduce_in_order(Reduction reduction, DType dtype, std::span<const std::byte* const> sources,
                     std::byte* to, std::int64_t count) {
    switch (dtype) {
        case DType::f32:
            return reduce<float>(reduction, sources, to, count);
        case DType::bf16:
            return reduce<bf16>(reduction, sources, to, count);
        case DType::f16:
            return reduce<f16>(reduction, sources, to, count);
        case DType::f64:
            return reduce<double>(reduction, sources, to, count);
        case DType::i32:
            return reduce<std::int32_t>(reduction, sources, to, count);
        case DType::i64:
            return reduce<std::int64_t>(reduction, sources, to, count);
        case DType::u16:
        case DType::u8:
        case DType::f8:
            break;
    }
    bug("reduction of a type that is not reduced");
}

}  // namespace drover
