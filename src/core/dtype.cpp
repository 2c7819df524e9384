#include "core/dtype.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/error.h"

namespace drover {

std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return "float32";
        case DType::bf16:
            return "bfloat16";
        case DType::f16:
            return "float16";
        case DType::f64:
            return "float64";
        case DType::i32:
            return "int32";
        case DType::i64:
            return "int64";
        case DType::u16:
            return "uint16";
        case DType::u8:
            return "uint8";
        case DType::f8:
            return "float8_e4m3fn";
    }
    bug("unknown dtype");
}

DType floating_dtype_from_name(std::string_view name, std::string_view what) {
    static constexpr std::array<std::pair<std::string_view, DType>, 9> names = {{
        {"float32", DType::f32},
        {"fp32", DType::f32},
        {"float", DType::f32},
        {"bfloat16", DType::bf16},
        {"bf16", DType::bf16},
        {"float16", DType::f16},
        {"fp16", DType::f16},
        {"half", DType::f16},
        {"float64", DType::f64},
    }};
    std::string_view bare = name;
    if (bare.starts_with("torch.")) bare.remove_prefix(6);
    for (const auto& [known, dtype] : names)
        if (bare == known) return dtype;
    throw Error(fmt::format("{} is \"{}\", which is not a floating-point type.", what, name),
                "Use float32, bfloat16 or float16.");
}

f16::f16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {  // NaN
        bits = static_cast<std::uint16_t>(sign | 0x7E00u);
    } else if (magnitude >= 0x477FF000u) {  // rounds to 65520 or more: infinity
        bits = static_cast<std::uint16_t>(sign | 0x7C00u);
    } else if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, units of 2^-24
        const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
        const float biased = scaled + 0x1p23f;  // rounds to an integer, to nearest even
        bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(biased) - 0x4B000000u));
    } else {
        const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
        bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
}

f16::operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
    const std::uint32_t mantissa = bits & 0x3FFu;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

f8::f8(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 24) & 0x80u;
    const std::uint32_t magnitude = word & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {  // NaN
        bits = static_cast<std::uint8_t>(sign | 0x7Fu);
    } else if (magnitude >= std::bit_cast<std::uint32_t>(largest)) {
        bits = static_cast<std::uint8_t>(sign | 0x7Eu);
    } else if (magnitude < 0x3C800000u) {  // below 2^-6: subnormal, units of 2^-9
        const float biased = std::bit_cast<float>(magnitude) * 0x1p9f + 0x1p23f;  // to nearest even
        bits = static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(biased) - 0x4B000000u));
    } else {
        const std::uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
        bits = static_cast<std::uint8_t>(sign | ((rounded - 0x3C000000u) >> 20));
    }
}

f8::operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
    const std::uint32_t exponent = (bits >> 3) & 0xFu;
    const std::uint32_t mantissa = bits & 7u;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7FC00000u);
    return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

}  // namespace drover
