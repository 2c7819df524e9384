#pragma once

#include <span>
#include <string>
#include <string_view>

/// Bytes as text.
namespace drover {

/// Two lower-case hexadecimal digits for each byte.
std::string hex_text(std::span<const unsigned char> bytes);

/// Whether a text consists of `digits` hexadecimal digits in lower case.
bool is_hex_text(std::string_view text, std::size_t digits);

/// Base64 (RFC 4648) with padding.
std::string base64_text(std::string_view bytes);

}  // namespace drover
