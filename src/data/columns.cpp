#include "data/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

namespace drover {

std::size_t find_column(const std::vector<std::string>& columns, std::string_view column,
                        std::string_view file) {
    const auto found = std::find(columns.begin(), columns.end(), column);
    if (found == columns.end())
        throw Error(fmt::format("{} has no column \"{}\"; its columns are: {}.", file, column,
                                fmt::join(columns, ", ")),
                    "Name one of them as the text column.");
    return static_cast<std::size_t>(found - columns.begin());
}

std::string choose_text_column(const std::vector<std::string>& columns, std::string_view wanted,
                               std::string_view file) {
    if (!wanted.empty()) return columns[find_column(columns, wanted, file)];
    const auto text = std::find(columns.begin(), columns.end(), "text");
    return text != columns.end() ? *text : columns.front();
}

}  // namespace drover
