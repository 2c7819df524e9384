#include "peft/name_pattern.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {
namespace {

Regex compiled(const std::string& pattern, std::string_view shown, std::string_view where) {
    try {
        return Regex(pattern, where);
    } catch (const Error&) {
        throw Error(fmt::format("{}: \"{}\" is not a regular expression that is understood.", where, shown),
                    "Write it as for Python's re.fullmatch, or list the names of the modules.");
    }
}

}  // namespace

NamePattern::NamePattern(std::string_view pattern, std::string_view where)
    : pattern_(pattern),
      where_(where),
      whole_(compiled(fmt::format("\\A(?:{})\\z", pattern), pattern, where)),
      begin_(compiled(fmt::format("\\A(?:{})", pattern), pattern, where)) {}

std::vector<Span> NamePattern::matches_of(const Regex& regex, std::string_view name) const {
    std::vector<Span> spans;
    try {
        regex.find_all(name, spans);
    } catch (const Error&) {
        throw Error(
            fmt::format("{}: the expression \"{}\" takes too long on the name {}.", where_, pattern_, name),
            "Write it with fewer repetitions inside repetitions, or list the names of the modules.");
    }
    return spans;
}

bool NamePattern::matches(std::string_view name) const {
    return !matches_of(whole_, name).empty();
}

std::string_view NamePattern::found_in(std::string_view name) const {
    const std::vector<Span> spans = matches_of(begin_, name);
    return spans.empty() ? std::string_view{}
                         : name.substr(spans.front().begin, spans.front().end - spans.front().begin);
}

}  // namespace drover
