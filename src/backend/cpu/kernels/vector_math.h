#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels.h"
#include "core/dtype.h"

/// Vectors of fp32 for the kernels, as wide as the instruction set's registers. Rows of any floating type are
/// read and written through them, so arithmetic is fp32 throughout; and since lanes and the order of
/// reductions are fixed by the row length alone, results depend neither on threads nor on how memory happens
/// to be aligned.
///
/// Only for files in kernels/: everything here lives in the namespace of one instruction set.
namespace drover::cpu::DROVER_ISA {

#ifdef __AVX512F__
inline constexpr int lanes = 16;
#else
inline constexpr int lanes = 8;
#endif

using Floats [[gnu::vector_size(4 * lanes)]] = float;
using Ints [[gnu::vector_size(4 * lanes)]] = std::int32_t;
using Words [[gnu::vector_size(4 * lanes)]] = std::uint32_t;
using HalfWords [[gnu::vector_size(2 * lanes)]] = std::uint16_t;
using Doubles [[gnu::vector_size(4 * lanes)]] = double;  // half as many lanes

/// Where in a row a vector is: `lanes` elements from `begin`, or the `count` < `lanes` ones that end the row.
struct Whole {
    std::int64_t begin;
};
struct Part {
    std::int64_t begin;
    std::int64_t count;
};

/// Calls body(Whole) for each full vector of a row of `length` elements, then body(Part) for the rest.
template <class Body>
[[gnu::always_inline]] inline void for_each_vector(std::int64_t length, const Body& body) {
    std::int64_t i = 0;
    for (; i + lanes <= length; i += lanes) body(Whole{i});
    if (i < length) body(Part{i, length - i});
}

[[gnu::always_inline]] inline Floats splat(float value) {
    return Floats{} + value;
}

template <class To, class From>
[[gnu::always_inline]] inline To bits_as(From from) {
    return __builtin_bit_cast(To, from);
}

// -------------------------------------------------------------------------------------------- load and store

#ifdef __AVX512F__
// The forms with a mask, all of it set: gcc 12 warns about an uninitialised value inside the plain ones.
[[gnu::always_inline]] inline Words widen(HalfWords x) {
    return bits_as<Words>(_mm512_maskz_cvtepu16_epi32(0xFFFF, bits_as<__m256i>(x)));
}
[[gnu::always_inline]] inline HalfWords narrow(Words x) {
    return bits_as<HalfWords>(_mm512_maskz_cvtepi32_epi16(0xFFFF, bits_as<__m512i>(x)));
}
[[gnu::always_inline]] inline Floats half_to_float(HalfWords x) {
    return _mm512_maskz_cvtph_ps(0xFFFF, bits_as<__m256i>(x));
}
[[gnu::always_inline]] inline HalfWords float_to_half(Floats x) {
    return bits_as<HalfWords>(_mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT));
}
[[gnu::always_inline]] inline Floats square_root(Floats x) {
    return _mm512_maskz_sqrt_ps(0xFFFF, x);
}
#else
[[gnu::always_inline]] inline Words widen(HalfWords x) {
    return bits_as<Words>(_mm256_cvtepu16_epi32(bits_as<__m128i>(x)));
}
/// Lanes must be below 2¹⁶.
[[gnu::always_inline]] inline HalfWords narrow(Words x) {
    const __m256i whole = bits_as<__m256i>(x);
    return bits_as<HalfWords>(
        _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
}
[[gnu::always_inline]] inline Floats half_to_float(HalfWords x) {
    return _mm256_cvtph_ps(bits_as<__m128i>(x));
}
[[gnu::always_inline]] inline HalfWords float_to_half(Floats x) {
    return bits_as<HalfWords>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
[[gnu::always_inline]] inline Floats square_root(Floats x) {
    return _mm256_sqrt_ps(x);
}
#endif

/// The bits of x rounded to bfloat16, to nearest even, in the low half of each lane; NaN stays a NaN.
[[gnu::always_inline]] inline Words bf16_bits(Floats x) {
    const Words word = bits_as<Words>(x);
    const Words rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    return x == x ? rounded : (word >> 16) | 0x40u;
}

[[gnu::always_inline]] inline Floats load_vector(const float* from) {
    Floats x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}
[[gnu::always_inline]] inline Floats load_vector(const bf16* from) {
    HalfWords half;
    __builtin_memcpy(&half, from, sizeof half);
    return bits_as<Floats>(widen(half) << 16);
}
[[gnu::always_inline]] inline Floats load_vector(const f16* from) {
    HalfWords half;
    __builtin_memcpy(&half, from, sizeof half);
    return half_to_float(half);
}

[[gnu::always_inline]] inline void store_vector(float* to, Floats x) {
    __builtin_memcpy(to, &x, sizeof x);
}
[[gnu::always_inline]] inline void store_vector(bf16* to, Floats x) {
    const HalfWords half = narrow(bf16_bits(x));
    __builtin_memcpy(to, &half, sizeof half);
}
[[gnu::always_inline]] inline void store_vector(f16* to, Floats x) {
    const HalfWords half = float_to_half(x);
    __builtin_memcpy(to, &half, sizeof half);
}

template <class T>
[[gnu::always_inline]] inline Floats load(const T* row, Whole at) {
    return load_vector(row + at.begin);
}

/// Lanes beyond the row's end are zero.
template <class T>
[[gnu::always_inline]] inline Floats load(const T* row, Part at) {
    alignas(64) T padded[lanes];
    __builtin_memset(padded, 0, sizeof padded);
    for (std::int64_t i = 0; i < at.count; ++i) padded[i] = row[at.begin + i];
    return load_vector(padded);
}

template <class T>
[[gnu::always_inline]] inline void store(T* row, Whole at, Floats x) {
    store_vector(row + at.begin, x);
}

template <class T>
[[gnu::always_inline]] inline void store(T* row, Part at, Floats x) {
    alignas(64) T padded[lanes];
    store_vector(padded, x);
    for (std::int64_t i = 0; i < at.count; ++i) row[at.begin + i] = padded[i];
}

/// x as it would be read back after being stored as T.
template <class T>
[[gnu::always_inline]] inline Floats rounded_to(Floats x) {
    if constexpr (dtype_of<T> == DType::f32)
        return x;
    else if constexpr (dtype_of<T> == DType::bf16)
        return bits_as<Floats>(bf16_bits(x) << 16);
    else
        static_assert(dtype_of<T> == DType::f32, "no kernel keeps intermediate values in this type");
}

/// One element, through the same conversions.
template <class T>
[[gnu::always_inline]] inline float load_one(const T* row, std::int64_t index) {
    return load(row, Part{index, 1})[0];
}
template <class T>
[[gnu::always_inline]] inline void store_one(T* row, std::int64_t index, float value) {
    store(row, Part{index, 1}, splat(value));
}

// ------------------------------------------------------------------------------------------------ arithmetic

/// The lanes added pairwise, always in the same order.
template <class Vector>
[[gnu::always_inline]] inline auto sum_of_lanes(Vector x) {
    constexpr int count = sizeof(Vector) / sizeof(x[0]);
    for (int half = count / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
}

/// e^x within 1 ulp (2 where the result is subnormal). 0 at −∞ and wherever the result underflows, +∞ at +∞
/// and on overflow; NaN stays NaN.
[[gnu::always_inline]] inline Floats exponential(Floats x) {
    // Beyond these bounds the result is 0 or infinity anyway; NaN passes both comparisons unchanged.
    x = x < -104.f ? splat(-104.f) : x;
    x = x > 89.f ? splat(89.f) : x;

    // x = n·ln 2 + r with |r| ≤ ln 2 / 2. Adding 1.5·2²³ rounds to an integer and leaves it in the low bits.
    constexpr float shift = 0x1.8p23f;
    const Floats shifted = x * 0x1.715476p0f + shift;
    const Floats n = shifted - shift;
    const Floats r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;

    // e^r = 1 + r + r²·q(r), q minimax of degree 4: relative error 3.1e-9.
    Floats q = splat(0.0013814595601771655f);
    q = q * r + 0.008368716852661898f;
    q = q * r + 0.04166838809553723f;
    q = q * r + 0.1666652063211282f;
    q = q * r + 0.49999993447641616f;
    const Floats power = (q * r) * r + r + 1.f;

    // Times 2ⁿ in two factors, because n itself may lie outside the exponents of fp32.
    const Ints exponent = bits_as<Ints>(shifted) - bits_as<std::int32_t>(shift);
    const Ints half = exponent >> 1;
    return power * bits_as<Floats>((half + 127) << 23) * bits_as<Floats>((exponent - half + 127) << 23);
}

[[gnu::always_inline]] inline Floats sigmoid(Floats x) {
    return 1.f / (1.f + exponential(-x));
}

// -------------------------------------------------------------------------------------------------- dispatch

/// The elements of a tensor whose type is known.
template <class T>
[[gnu::always_inline]] inline T* data_of(const Tensor& tensor) {
    return static_cast<T*>(tensor.raw());
}

/// Calls body(T{}) with the element type of `dtype` (f32 or bf16).
template <class Body>
[[gnu::always_inline]] inline void with_type(DType dtype, const Body& body) {
    switch (dtype) {
        case DType::f32:
            return body(float{});
        case DType::bf16:
            return body(bf16{});
        default:
            unexpected_dtype();
    }
}

/// The same, also for f16.
template <class Body>
[[gnu::always_inline]] inline void with_any_type(DType dtype, const Body& body) {
    if (dtype == DType::f16) return body(f16{});
    with_type(dtype, body);
}

}  // namespace drover::cpu::DROVER_ISA
