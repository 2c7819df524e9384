#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace drover::test {

/// A safetensors file made by hand: the length of `json`, `json`, and `data_bytes` bytes of data.
inline std::string raw_safetensors(std::string_view json, std::size_t data_bytes) {
    const std::uint64_t length = json.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += json;
    for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
    return bytes;
}

inline void write_raw(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_raw(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace drover::test
