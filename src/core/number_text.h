#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Numbers as messages show them.
namespace drover {

/// "1 row", "2 rows"; `plural` where another s is not enough: counted(2, "process", "processes").
std::string counted(std::int64_t number, std::string_view singular, std::string_view plural = {});

/// "1.50 GiB", "12.0 KiB", "17 bytes".
std::string bytes_text(std::size_t bytes);

/// "1,234,567".
std::string with_thousands(std::int64_t value);

}  // namespace drover
