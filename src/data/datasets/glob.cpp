#include "data/datasets/glob.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "core/error.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Removes the set ("[…]") at the beginning of `pattern`; returns whether `c` is in the set.
bool take_set(std::string_view& pattern, char c) {
    std::size_t at = 1;
    const bool negated = pattern.substr(at).starts_with('!') || pattern.substr(at).starts_with('^');
    if (negated) ++at;
    bool found = false;
    for (std::size_t first = at; at < pattern.size() && (pattern[at] != ']' || at == first); ++at) {
        if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
            found |= pattern[at] <= c && c <= pattern[at + 2];
            at += 2;
        } else {
            found |= pattern[at] == c;
        }
    }
    pattern.remove_prefix(std::min(at + 1, pattern.size()));
    return found != negated;
}

bool may_match(std::string_view part, std::string_view name, bool is_folder) {
    if (name.starts_with('.') && !part.starts_with('.')) return false;
    return !is_folder || !name.starts_with("__") || part.starts_with("__");
}

void check_sets(std::string_view pattern) {
    for (std::size_t at = pattern.find('['); at != std::string_view::npos; at = pattern.find('[', at)) {
        at = pattern.find(']', at + 2);
        if (at == std::string_view::npos)
            throw Error(fmt::format("The pattern {} has a \"[\" that is never closed.", pattern),
                        "Close it, or write [[] for the character itself.");
    }
}

class Expansion {
  public:
    std::vector<fs::path> files;

    void expand(const fs::path& folder, const std::vector<std::string>& parts, std::size_t at) {
        const bool last = at + 1 == parts.size();
        if (parts[at] == "**") {
            if (last)
                add_everything(folder);
            else
                expand(folder, parts, at + 1);
            for (const auto& entry : entries(folder))
                if (is_folder(entry) && may_match("**", entry.path().filename().string(), true))
                    expand(entry.path(), parts, at);
            return;
        }
        if (!is_pattern(parts[at])) {
            const fs::path path = folder / parts[at];
            std::error_code ignored;
            if (last ? fs::is_regular_file(path, ignored) : fs::is_directory(path, ignored))
                last ? files.push_back(path) : expand(path, parts, at + 1);
            return;
        }
        for (const auto& entry : entries(folder)) {
            const std::string name = entry.path().filename().string();
            const bool folder_entry = is_folder(entry);
            if (folder_entry == last || !may_match(parts[at], name, folder_entry) ||
                !matches_pattern(parts[at], name))
                continue;
            last ? files.push_back(entry.path()) : expand(entry.path(), parts, at + 1);
        }
    }

  private:
    static bool is_folder(const fs::directory_entry& entry) {
        std::error_code ignored;
        return entry.is_directory(ignored);
    }

    static std::vector<fs::directory_entry> entries(const fs::path& folder) {
        std::vector<fs::directory_entry> found;
        std::error_code ignored;
        for (fs::directory_iterator entry(folder.empty() ? "." : folder, ignored), end;
             !ignored && entry != end; entry.increment(ignored))
            found.push_back(*entry);
        std::sort(found.begin(), found.end());
        return found;
    }

    void add_everything(const fs::path& folder) {
        for (const auto& entry : entries(folder))
            if (!is_folder(entry) && may_match("**", entry.path().filename().string(), false))
                files.push_back(entry.path());
    }
};

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
    while (!pattern.empty()) {
        if (pattern.front() == '*') {
            while (pattern.starts_with('*')) pattern.remove_prefix(1);
            for (std::size_t at = 0; at <= name.size(); ++at)
                if (matches_pattern(pattern, name.substr(at))) return true;
            return false;
        }
        if (name.empty()) return false;
        if (pattern.front() == '[') {
            if (!take_set(pattern, name.front())) return false;
        } else {
            if (pattern.front() != '?' && pattern.front() != name.front()) return false;
            pattern.remove_prefix(1);
        }
        name.remove_prefix(1);
    }
    return name.empty();
}

bool is_pattern(std::string_view path) {
    return path.find_first_of("*?[") != std::string_view::npos;
}

std::vector<fs::path> glob_files(const fs::path& base, std::string_view pattern) {
    check_sets(pattern);
    const fs::path path(pattern);
    std::vector<std::string> parts;
    for (const auto& part : path.relative_path())
        if (!part.empty() && part != ".") parts.push_back(part.string());
    Expansion expansion;
    if (!parts.empty()) expansion.expand(path.is_absolute() ? path.root_path() : base, parts, 0);
    std::sort(expansion.files.begin(), expansion.files.end());
    expansion.files.erase(std::unique(expansion.files.begin(), expansion.files.end()), expansion.files.end());
    return std::move(expansion.files);
}

}  // namespace drover
