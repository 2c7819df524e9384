#include "data/rows/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

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

void refuse_conversations(const std::vector<std::string>& columns, std::string_view file) {
    const auto has = [&](std::string_view column) {
        return std::find(columns.begin(), columns.end(), column) != columns.end();
    };
    if (has("text")) return;
    constexpr std::array<std::string_view, 3> whole{"messages", "conversations", "conversation"};
    constexpr std::array<std::pair<std::string_view, std::string_view>, 8> parts{{
        {"prompt", "completion"},
        {"prompt", "response"},
        {"instruction", "output"},
        {"instruction", "response"},
        {"question", "answer"},
        {"input", "output"},
        {"source", "target"},
        {"chosen", "rejected"},
    }};
    std::string found;
    for (const std::string_view column : whole)
        if (has(column)) found = fmt::format("the column \"{}\"", column);
    for (const auto& [asked, answered] : parts)
        if (has(asked) && has(answered))
            found = fmt::format("the columns \"{}\" and \"{}\"", asked, answered);
    if (found.empty()) return;
    throw Error(
        fmt::format("{} has {}, and no single one of its columns is the whole text.", file, found),
        "`drover sft` takes such rows as they are, as do run_clm and eval with --sft. Otherwise name the "
        "column that is the text with --text_column, or join the columns to one named \"text\".");
}

std::string columns_line(const std::vector<std::string>& columns, std::string_view column) {
    constexpr std::size_t most = 10;
    std::vector<std::string> others;
    for (const std::string& name : columns)
        if (name != column) others.push_back(name);
    const std::size_t more = others.size() - std::min(others.size(), most);
    others.resize(others.size() - more);
    const std::string rest = more == 0 ? "" : fmt::format(" and {} more", more);
    return fmt::format("The text is in the column \"{}\"{}.", column,
                       others.empty() ? "" : fmt::format("; not used: {}{}", fmt::join(others, ", "), rest));
}

std::string choose_text_column(const std::vector<std::string>& columns, std::string_view wanted,
                               std::string_view file) {
    if (!wanted.empty()) return columns[find_column(columns, wanted, file)];
    const auto text = std::find(columns.begin(), columns.end(), "text");
    return text != columns.end() ? *text : columns.front();
}

}  // namespace drover
