#include "app/launch_shown.h"

#include <fmt/format.h>

namespace drover {
namespace {

std::string shown(std::string_view text, std::string_view kept) {
    std::string safe;
    for (const char sign : text) {
        const auto byte = static_cast<unsigned char>(sign);
        if ((byte >= 0x20 && byte <= 0x7e) || kept.find(sign) != std::string_view::npos)
            safe.push_back(sign);
        else
            safe += fmt::format("\\x{:02x}", byte);
    }
    return safe;
}

}  // namespace

std::string shown_text(std::string_view text) {
    return shown(text, "");
}

std::string shown_lines(std::string_view text) {
    return shown(text, "\n\t");
}

}  // namespace drover
