#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace drover {
namespace {

constexpr bool stands_for_itself(int byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int others = 68;

struct Alphabet {
    std::array<char32_t, 256> of_byte{};
    std::array<unsigned char, others> of_other{};  // the byte of U+0100 + index

    constexpr Alphabet() {
        std::size_t count = 0;
        for (int byte = 0; byte < 256; ++byte) {
            const auto index = static_cast<std::size_t>(byte);
            if (stands_for_itself(byte)) {
                of_byte[index] = static_cast<char32_t>(byte);
            } else {
                of_byte[index] = 0x100 + static_cast<char32_t>(count);
                of_other[count++] = static_cast<unsigned char>(byte);
            }
        }
    }
};

constexpr Alphabet alphabet;

}  // namespace

char32_t byte_to_char(unsigned char byte) {
    return alphabet.of_byte[byte];
}

std::optional<unsigned char> char_to_byte(char32_t code_point) {
    if (code_point < 0x100)
        return stands_for_itself(static_cast<int>(code_point))
                   ? std::optional(static_cast<unsigned char>(code_point))
                   : std::nullopt;
    if (code_point < 0x100 + others) return alphabet.of_other[code_point - 0x100];
    return std::nullopt;
}

std::string bytes_to_alphabet(std::string_view bytes) {
    std::string text;
    text.reserve(2 * bytes.size());
    for (const char byte : bytes) append_utf8(text, byte_to_char(static_cast<unsigned char>(byte)));
    return text;
}

std::optional<std::string> alphabet_to_bytes(std::string_view token) {
    std::string bytes;
    while (!token.empty()) {
        const Utf8Char c = decode_utf8(token);
        if (c.length == 0) return std::nullopt;
        const auto byte = char_to_byte(c.code_point);
        if (!byte) return std::nullopt;
        bytes.push_back(static_cast<char>(*byte));
        token.remove_prefix(c.length);
    }
    return bytes;
}

}  // namespace drover
