#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace drover {

/// "1 row", "2 rows"; `plural` where another s is not enough: counted(2, "process", "processes").
std::string counted(std::int64_t number, std::string_view singular, std::string_view plural = {});

}  // namespace drover
