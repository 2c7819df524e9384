#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// Takes "tp_rank_07" and a "_" after it off the front of a file's name, for the kind "tp".
inline std::optional<std::int64_t> take_rank(std::string_view& name, std::string_view kind) {
    std::string_view rest = name;
    const std::string word = std::string(kind) + "_rank_";
    if (!rest.starts_with(word)) return std::nullopt;
    rest.remove_prefix(word.size());
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) return std::nullopt;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.starts_with('_')) rest.remove_prefix(1);
    name = rest;
    return number;
}

}  // namespace drover
