#include "core/python_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace drover {
namespace {

std::string special_float(double value) {
    if (std::isnan(value)) return "nan";
    return value < 0 ? "-inf" : "inf";
}

std::string finite_float(double value) {
    char buffer[40];
    const auto written = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
    const std::string_view text(buffer, static_cast<std::size_t>(written.ptr - buffer));
    const std::size_t mark = text.find('e');
    const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
    if (exponent < -4 || exponent >= 16) return std::string(text);

    const std::string sign = text.front() == '-' ? "-" : "";
    std::string digits;
    for (const char c : text.substr(0, mark))
        if (c >= '0' && c <= '9') digits += c;
    if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace

std::string python_float(double value) {
    return std::isfinite(value) ? finite_float(value) : special_float(value);
}

double python_round(double value, int digits) {
    if (!std::isfinite(value)) return value;
    return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
}

std::string python_general(double value, int digits) {
    if (!std::isfinite(value)) return special_float(value);
    return fmt::format("{:.{}g}", value, digits);
}

std::string python_timedelta(long long seconds) {
    const long long days = seconds / 86400, rest = seconds % 86400;
    const std::string day_text = days == 0 ? "" : fmt::format("{} day{}, ", days, days == 1 ? "" : "s");
    return fmt::format("{}{}:{:02}:{:02}", day_text, rest / 3600, rest / 60 % 60, rest % 60);
}

}  // namespace drover
