#pragma once

#include <cstdint>

namespace drover {

/// Bits for the classes of a code point by Unicode 16.0, whatever the version of ICU. Letters, numbers and
/// white space are those of the regular expressions of Hugging Face's library.
namespace char_class {
inline constexpr std::uint8_t letter = 1;       ///< general category L
inline constexpr std::uint8_t number = 2;       ///< general category N
inline constexpr std::uint8_t space = 4;        ///< property White_Space
inline constexpr std::uint8_t punctuation = 8;  ///< general category P
inline constexpr std::uint8_t word = 16;        ///< \w: alphabetic, mark, decimal digit, connector, joiner
inline constexpr std::uint8_t mark = 32;        ///< general category M
}  // namespace char_class

/// The bits of every code point, indexed by it: 0x110000 bytes.
const std::uint8_t* char_classes();

}  // namespace drover
