#include "core/number_text.h"

#include <fmt/format.h>

#include <array>

namespace drover {

std::string counted(std::int64_t number, std::string_view singular, std::string_view plural) {
    if (number == 1) return fmt::format("1 {}", singular);
    return plural.empty() ? fmt::format("{} {}s", number, singular) : fmt::format("{} {}", number, plural);
}

std::string bytes_text(std::size_t bytes) {
    static constexpr std::array<std::string_view, 5> units = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    if (bytes < 1024) return fmt::format("{} bytes", bytes);
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string with_thousands(std::int64_t value) {
    std::string digits = fmt::format("{}", value);
    const std::size_t first = value < 0 ? 1 : 0;
    for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
    return digits;
}

}  // namespace drover
