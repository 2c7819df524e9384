#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

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

/// The message of the drover::Error that `action` throws; fails the test when it throws none, or one without
/// a remedy.
template <class Action>
std::string error_of(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        EXPECT_FALSE(error.remedy().empty()) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "no error was thrown";
    return {};
}

/// Expects every part to be in the message of the drover::Error that `action` throws.
template <class Action>
void expect_error(Action&& action, std::initializer_list<std::string_view> parts) {
    const std::string message = error_of(std::forward<Action>(action));
    for (const std::string_view part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

}  // namespace drover::test
