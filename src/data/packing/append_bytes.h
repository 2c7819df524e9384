#pragma once

#include <bit>
#include <string>
#include <type_traits>

namespace drover {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

/// Appends the bytes of a number, least significant first.
template <class T>
void append_bytes(std::string& bytes, T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace drover
