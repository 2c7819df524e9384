#include "core/counted.h"

#include <fmt/format.h>

namespace drover {

std::string counted(std::int64_t number, std::string_view singular, std::string_view plural) {
    if (number == 1) return fmt::format("1 {}", singular);
    return plural.empty() ? fmt::format("{} {}s", number, singular) : fmt::format("{} {}", number, plural);
}

}  // namespace drover
