#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace drover {

// Fields of Protocol Buffers as they are written: a key (field number and wire type) before every value. A
// message is its fields one after the other, and a message within another is a bytes_field() of it.

template <class Number>
std::string little_endian(Number number) {
    static_assert(std::endian::native == std::endian::little);
    std::string bytes(sizeof number, '\0');
    std::memcpy(bytes.data(), &number, sizeof number);
    return bytes;
}

inline std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes += static_cast<char>(value);
}

inline std::string integer_field(unsigned number, std::int64_t value) {
    return varint(number << 3 | 0) + varint(static_cast<std::uint64_t>(value));
}
inline std::string double_field(unsigned number, double value) {
    return varint(number << 3 | 1) + little_endian(value);
}
inline std::string bytes_field(unsigned number, std::string_view value) {
    return varint(number << 3 | 2) + varint(value.size()) + std::string(value);
}
inline std::string float_field(unsigned number, float value) {
    return varint(number << 3 | 5) + little_endian(value);
}

}  // namespace drover
