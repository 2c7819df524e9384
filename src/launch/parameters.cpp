#include "launch/parameters.h"

#include <algorithm>
#include <array>

namespace drover {

bool is_parameter_flag(std::string_view word) {
    constexpr std::array<std::string_view, 7> flags{"-mca",   "--mca",     "-gmca",    "--gmca",
                                                    "--omca", "--prtemca", "--pmixmca"};
    return std::ranges::find(flags, word) != flags.end();
}

std::vector<std::string> values_of_parameter(const std::vector<std::string>& words, std::string_view name) {
    std::vector<std::string> values;
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
        if (!is_parameter_flag(words[i])) continue;
        if (words[i + 1] == name) values.push_back(words[i + 2]);
        i += 2;
    }
    return values;
}

}  // namespace drover
