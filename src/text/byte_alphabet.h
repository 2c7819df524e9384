#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// The alphabet of byte-level tokenizers (GPT-2's): every byte has a printable character. 0x21–0x7E,
/// 0xA1–0xAC and 0xAE–0xFF map to themselves, the other 68 bytes in order to U+0100 and following.
char32_t byte_to_char(unsigned char byte);
std::optional<unsigned char> char_to_byte(char32_t code_point);

/// Converts bytes to characters of the alphabet.
std::string bytes_to_alphabet(std::string_view bytes);
/// The bytes that a token in the alphabet represents; nothing if it has other characters.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace drover
