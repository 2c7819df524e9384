#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace drover {

/// U+2581, which sentencepiece and the tokenizers made from its files write for a space.
inline constexpr std::string_view space_marker = "▁";

/// U+FFFD, which stands for bytes that are not UTF-8.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// One decoded character. `length` is 0 where the bytes are not UTF-8 (overlong forms, surrogates and values
/// past U+10FFFF included).
struct Utf8Char {
    char32_t code_point;
    unsigned length;  ///< bytes taken, 1 to 4
};

/// The character that begins at `bytes[0]`; `bytes` is not empty.
Utf8Char decode_utf8(std::string_view bytes);

/// Appends the 1 to 4 bytes of a code point (not a surrogate, at most U+10FFFF).
void append_utf8(std::string& text, char32_t code_point);

/// The number of leading bytes that are complete characters; bytes.size() if all of it is UTF-8.
std::size_t valid_utf8_prefix(std::string_view bytes);

}  // namespace drover
