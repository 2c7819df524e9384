#include "core/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/error.h"

namespace drover {

std::size_t edit_distance(std::string_view left, std::string_view right) {
    std::vector<std::size_t> before(right.size() + 1), above(right.size() + 1), row(right.size() + 1);
    for (std::size_t j = 0; j <= right.size(); ++j) above[j] = j;
    for (std::size_t i = 1; i <= left.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= right.size(); ++j) {
            const std::size_t replaced = above[j - 1] + (left[i - 1] == right[j - 1] ? 0 : 1);
            row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
            if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        std::swap(before, above);
        std::swap(above, row);
    }
    return above[right.size()];
}

std::string nearest_name(std::string_view word, std::span<const std::string> names) {
    // No name resembles a longer word; comparing would only cost time.
    if (word.size() > 100) return {};
    std::string best;
    // For a short word, two changed letters make a different word.
    const std::size_t most = word.size() < 5 ? 1 : std::max<std::size_t>(2, word.size() / 3);
    std::size_t best_distance = most + 1;
    for (const std::string& name : names) {
        const std::size_t distance = edit_distance(word, name);
        if (distance < best_distance) {
            best = name;
            best_distance = distance;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names, std::string_view prefix,
                         std::string_view otherwise) {
    const std::string nearest = nearest_name(word, names);
    return nearest.empty() ? std::string(otherwise) : fmt::format("Did you mean {}{}?", prefix, nearest);
}

std::string lower_case(std::string_view text) {
    std::string lower(text);
    for (char& letter : lower)
        if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    return lower;
}

std::string with_underscores(std::string_view name) {
    std::string changed(name);
    std::replace(changed.begin(), changed.end(), '-', '_');
    return changed;
}

std::string either_of(std::span<const std::string> words) {
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i)
        text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
    return text;
}

std::vector<std::pair<std::string, std::string>> key_values(std::string_view text, std::string_view where) {
    std::vector<std::pair<std::string, std::string>> pairs;
    const auto trimmed = [](std::string_view part) {
        const std::size_t first = part.find_first_not_of(' ');
        if (first == std::string_view::npos) return std::string();
        return std::string(part.substr(first, part.find_last_not_of(' ') - first + 1));
    };
    for (const std::string& part : split_words(text, ',')) {
        const std::size_t equals = part.find('=');
        if (equals == std::string::npos || trimmed(part.substr(0, equals)).empty())
            throw UsageError(fmt::format("{} has the part \"{}\", which is not key=value.", where, part),
                             "Write key=value,key=value.");
        pairs.emplace_back(trimmed(std::string_view(part).substr(0, equals)),
                           trimmed(std::string_view(part).substr(equals + 1)));
    }
    return pairs;
}

std::string wrapped_text(std::string_view text, std::size_t margin, std::size_t columns) {
    std::string lines, line(margin, ' ');
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) {
        if (line.size() > margin && line.size() + 1 + word.size() > columns) {
            lines += line + "\n";
            line.assign(margin, ' ');
        }
        if (line.size() > margin) line += ' ';
        line += word;
    }
    return lines + line + "\n";
}

std::vector<std::string> split_words(std::string_view text, char separator) {
    std::vector<std::string> words;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(separator), text.size());
        if (end > 0) words.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return words;
}

}  // namespace drover
