#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

/// Small files of the system, such as those of /proc, which need not be there.
namespace drover {

/// The whole file; empty when it cannot be read.
inline std::string system_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The rest of the first line that begins with `key`, without the colon, quotes and blanks around it: of
/// "MemFree:  17 kB" "17 kB"; empty when there is none.
inline std::string line_of(const std::string& text, std::string_view key) {
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view line(text.data() + begin, end - begin);
        begin = end + 1;
        if (!line.starts_with(key)) continue;
        line.remove_prefix(key.size());
        constexpr std::string_view around = " \t:=\"\r";
        const std::size_t first = line.find_first_not_of(around);
        if (first == std::string_view::npos) return {};
        return std::string(line.substr(first, line.find_last_not_of(around) - first + 1));
    }
    return {};
}

}  // namespace drover
