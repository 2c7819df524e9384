#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace drover {

Utf8Char decode_utf8(std::string_view bytes) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
    const auto bits = [&](std::size_t i) { return char32_t{byte(i)} & 0x3F; };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    if (lead < 0xC2) return {0, 0};
    if (lead < 0xE0) {
        if (bytes.size() < 2 || !continues(1)) return {0, 0};
        return {(char32_t{lead} & 0x1F) << 6 | bits(1), 2};
    }
    if (lead < 0xF0) {
        if (bytes.size() < 3 || !continues(1) || !continues(2)) return {0, 0};
        const char32_t code = (char32_t{lead} & 0x0F) << 12 | bits(1) << 6 | bits(2);
        return code < 0x800 || (code >= 0xD800 && code < 0xE000) ? Utf8Char{0, 0} : Utf8Char{code, 3};
    }
    if (lead < 0xF5) {
        if (bytes.size() < 4 || !continues(1) || !continues(2) || !continues(3)) return {0, 0};
        const char32_t code = (char32_t{lead} & 0x07) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
        return code < 0x10000 || code > 0x10FFFF ? Utf8Char{0, 0} : Utf8Char{code, 4};
    }
    return {0, 0};
}

void append_utf8(std::string& text, char32_t code_point) {
    const auto tail = [&](int shift) {
        text.push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
    };
    if (code_point < 0x80) {
        text.push_back(static_cast<char>(code_point));
    } else if (code_point < 0x800) {
        text.push_back(static_cast<char>(0xC0 | code_point >> 6));
        tail(0);
    } else if (code_point < 0x10000) {
        text.push_back(static_cast<char>(0xE0 | code_point >> 12));
        tail(6);
        tail(0);
    } else {
        text.push_back(static_cast<char>(0xF0 | code_point >> 18));
        tail(12);
        tail(6);
        tail(0);
    }
}

std::size_t valid_utf8_prefix(std::string_view bytes) {
    constexpr std::uint64_t high_bits = 0x8080808080808080;
    std::size_t i = 0;
    while (i < bytes.size()) {
        std::uint64_t eight;
        while (i + sizeof(eight) <= bytes.size()) {  // most text is ASCII, eight characters at a time
            std::memcpy(&eight, bytes.data() + i, sizeof(eight));
            if ((eight & high_bits) != 0) break;
            i += sizeof(eight);
        }
        if (i == bytes.size()) break;
        const unsigned length = decode_utf8(bytes.substr(i)).length;
        if (length == 0) break;
        i += length;
    }
    return i;
}

}  // namespace drover
