#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace drover {

/// Element types that tensors of the engine can have. (Files may hold more; see io/safetensors.h.)
enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i64, u16, u8, f8 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::f64:
        case DType::i64:
            return 8;
        case DType::f32:
        case DType::i32:
            return 4;
        case DType::bf16:
        case DType::f16:
        case DType::u16:
            return 2;
        case DType::u8:
        case DType::f8:
            return 1;
    }
    return 0;
}

constexpr bool is_floating(DType dtype) {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

/// PyTorch's name: "float32", "bfloat16", …
std::string_view name_of(DType dtype);

/// The dtype that a user calls `name` ("bfloat16", "bf16", "float32", "fp32", "torch.float16", …).
/// Throws Error naming `what` (a flag or a key) when it is none of the floating types.
DType floating_dtype_from_name(std::string_view name, std::string_view what);

/// bfloat16: the upper half of a float. Conversion from float rounds to nearest even and keeps NaN a NaN.
struct bf16 {
    std::uint16_t bits;

    bf16() = default;
    explicit bf16(float value) {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
        const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
        bits = static_cast<std::uint16_t>(is_nan ? ((word >> 16) | 0x40u) : rounded);
    }
    explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE half. Conversion from float rounds to nearest even; overflow gives infinity.
struct f16 {
    std::uint16_t bits;

    f16() = default;
    explicit f16(float value);
    explicit operator float() const;
};

/// FP8 with 4 bits of exponent and 3 of mantissa (E4M3, without infinities). Conversion from float rounds to
/// nearest even; what is beyond ±448 becomes ±448, and NaN stays a NaN.
struct f8 {
    static constexpr float largest = 448;

    std::uint8_t bits;

    f8() = default;
    explicit f8(float value);
    explicit operator float() const;
};

template <class T>
struct dtype_of_type;
template <>
struct dtype_of_type<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_type<bf16> {
    static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of_type<f16> {
    static constexpr DType value = DType::f16;
};
template <>
struct dtype_of_type<double> {
    static constexpr DType value = DType::f64;
};
template <>
struct dtype_of_type<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct dtype_of_type<std::int64_t> {
    static constexpr DType value = DType::i64;
};
template <>
struct dtype_of_type<std::uint16_t> {
    static constexpr DType value = DType::u16;
};
template <>
struct dtype_of_type<std::uint8_t> {
    static constexpr DType value = DType::u8;
};

template <>
struct dtype_of_type<f8> {
    static constexpr DType value = DType::f8;
};

/// The DType whose elements are T in memory.
template <class T>
inline constexpr DType dtype_of = dtype_of_type<T>::value;

}  // namespace drover
