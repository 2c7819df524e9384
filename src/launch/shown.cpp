#include "launch/shown.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace drover {
namespace {

/// Excludes control characters, and those that end lines or change the writing direction.
bool is_harmless(char32_t sign) {
    const bool controls = sign < 0x20 || (sign >= 0x7f && sign < 0xa0);
    const bool steers = (sign >= 0x2028 && sign <= 0x202e) || (sign >= 0x2066 && sign <= 0x2069);
    return !controls && !steers;
}

std::string shown(std::string_view text, std::string_view kept) {
    std::string safe;
    while (!text.empty()) {
        const Utf8Char sign = decode_utf8(text);
        const std::string_view bytes = text.substr(0, std::max(1u, sign.length));
        if (sign.length > 0 && (is_harmless(sign.code_point) || kept.find(bytes) != std::string_view::npos))
            safe += bytes;
        else
            for (const char byte : bytes) safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        text.remove_prefix(bytes.size());
    }
    return safe;
}

}  // namespace

std::string shown_text(std::string_view text) {
    return shown(text, "");
}

std::string shown_lines(std::string_view text) {
    return shown(text, "\n\t");
}

}  // namespace drover
