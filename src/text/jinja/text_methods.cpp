// The methods of Python's str.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"

namespace drover::jinja {
namespace {

/// A text that is marked safe stays so.
Value like(Runtime& runtime, const Value& self, std::string_view text) {
    return runtime.text(std::string(text), self.as<TextObject>().markup);
}

Value texts(Runtime& runtime, const Value& self, const std::vector<std::string_view>& parts) {
    std::vector<Value> items;
    for (const std::string_view part : parts) items.push_back(like(runtime, self, part));
    return runtime.list(std::move(items));
}

template <std::string (*map)(std::string_view)>
Value mapped(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "this method of str", arguments);
    runtime.step(self.text().size() / 16);
    return like(runtime, self, map(self.text()));
}

template <bool (*test)(std::string_view)>
Value tested(Runtime& runtime, const Value& self, const Arguments& arguments) {
    expect_no_arguments(runtime, "this method of str", arguments);
    runtime.step(self.text().size() / 16);
    return Value::boolean(test(self.text()));
}

template <bool left, bool right>
Value strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [chars] = bound<1>(runtime, "str.strip", arguments, {"chars"}, 0);
    runtime.step(self.text().size() / 64);
    if (chars.is_missing() || chars.is_none()) return like(runtime, self, stripped(self.text(), left, right));
    const std::string& unwanted = expect_text(runtime, chars, "the argument of str.strip");
    runtime.step(self.text().size() / 16 * (1 + unwanted.size() / 64));
    return like(runtime, self, stripped_of(self.text(), unwanted, left, right));
}

std::size_t most_cuts(Runtime& runtime, const Value& limit) {
    const std::int64_t count = limit.is_missing() ? -1 : expect_integer(runtime, limit, "maxsplit");
    return count < 0 ? static_cast<std::size_t>(-1) : static_cast<std::size_t>(count);
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [separator, limit] = bound<2>(runtime, "str.split", arguments, {"sep", "maxsplit"}, 0);
    const std::size_t cuts = most_cuts(runtime, limit);
    const std::string_view text = self.text();
    if (separator.is_missing() || separator.is_none()) {
        runtime.step(text.size() / 16);
        return texts(runtime, self,
                     from_right ? split_at_spaces_from_right(text, cuts) : split_at_spaces(text, cuts));
    }
    const std::string& at = expect_text(runtime, separator, "the separator of str.split");
    if (at.empty()) runtime.fail("empty separator");
    runtime.search(text.size(), at.size());
    std::vector<std::string_view> parts;
    std::string_view rest = text;
    while (parts.size() < cuts) {
        const std::size_t found = from_right ? rest.rfind(at) : rest.find(at);
        if (found == std::string_view::npos) break;
        parts.push_back(from_right ? rest.substr(found + at.size()) : rest.substr(0, found));
        rest = from_right ? rest.substr(0, found) : rest.substr(found + at.size());
    }
    parts.push_back(rest);
    if (from_right) std::reverse(parts.begin(), parts.end());
    return texts(runtime, self, parts);
}

Value splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [keep] = bound<1>(runtime, "str.splitlines", arguments, {"keepends"}, 0);
    runtime.step(self.text().size() / 16);
    return texts(runtime, self, split_lines(self.text(), truth(keep)));
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [separator] = bound<1>(runtime, "str.partition", arguments, {"sep"}, 1);
    const std::string& at = expect_text(runtime, separator, "the separator of str.partition");
    if (at.empty()) runtime.fail("empty separator");
    const std::string_view text = self.text();
    runtime.search(text.size(), at.size());
    const std::size_t found = from_right ? text.rfind(at) : text.find(at);
    if (found == std::string_view::npos) {
        const Value nothing = runtime.text("");
        return from_right ? runtime.tuple({nothing, nothing, self}) : runtime.tuple({self, nothing, nothing});
    }
    return runtime.tuple({like(runtime, self, text.substr(0, found)), separator,
                          like(runtime, self, text.substr(found + at.size()))});
}

/// self[start:end] and where it begins, in bytes; nothing where start lies behind the end.
struct Window {
    std::string_view text;
    std::size_t begin;
    bool valid;
};

Window window(Runtime& runtime, const Value& self, const Value& start, const Value& end) {
    const std::string& text = self.text();
    const bool given_start = !start.is_missing() && !start.is_none();
    const bool given_end = !end.is_missing() && !end.is_none();
    if (!given_start && !given_end) return {text, 0, true};
    runtime.step(text.size() / 16);
    const auto size = static_cast<std::int64_t>(self.as<TextObject>().characters);
    const auto place = [&](const Value& bound, bool given, std::int64_t otherwise) {
        if (!given) return otherwise;
        const std::int64_t at = expect_integer(runtime, bound, "a bound");
        return at < 0 ? std::max<std::int64_t>(0, at + size) : at;
    };
    const std::int64_t from = place(start, given_start, 0);
    const std::int64_t to = std::min(size, place(end, given_end, size));
    if (from > to) return {{}, 0, false};
    const std::vector<std::size_t> offsets = character_offsets(text);
    const std::size_t begin = offsets[static_cast<std::size_t>(from)];
    return {std::string_view(text).substr(begin, offsets[static_cast<std::size_t>(to)] - begin), begin, true};
}

template <bool at_end>
Value begins_or_ends(Runtime& runtime, const Value& self, const Arguments& arguments) {
    constexpr std::string_view name = at_end ? "str.endswith" : "str.startswith";
    const auto [wanted, start, end] = bound<3>(runtime, name, arguments, {"prefix", "start", "end"}, 1);
    const Window part = window(runtime, self, start, end);
    const auto matches = [&](const Value& value) {
        const std::string& affix = expect_text(runtime, value, fmt::format("the argument of {}", name));
        runtime.step(1 + affix.size() / 64);
        return part.valid && (at_end ? part.text.ends_with(affix) : part.text.starts_with(affix));
    };
    if (!wanted.is(Kind::tuple)) return Value::boolean(matches(wanted));
    const auto& choices = wanted.sequence().items;
    return Value::boolean(std::any_of(choices.begin(), choices.end(), matches));
}

/// str.find and its siblings.
template <bool from_right, bool must>
Value find(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [wanted, start, end] = bound<3>(runtime, "str.find", arguments, {"sub", "start", "end"}, 1);
    const std::string& sub = expect_text(runtime, wanted, "the argument of str.find");
    const Window part = window(runtime, self, start, end);
    runtime.search(part.text.size(), sub.size());
    const std::size_t found = !part.valid  ? std::string_view::npos
                              : from_right ? part.text.rfind(sub)
                                           : part.text.find(sub);
    if (found != std::string_view::npos) {
        const std::string_view before = std::string_view(self.text()).substr(0, part.begin + found);
        return Value::integer(static_cast<std::int64_t>(character_count(before)));
    }
    if (must) runtime.fail("substring not found");
    return Value::integer(-1);
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [wanted, start, end] = bound<3>(runtime, "str.count", arguments, {"sub", "start", "end"}, 1);
    const std::string& sub = expect_text(runtime, wanted, "the argument of str.count");
    const Window part = window(runtime, self, start, end);
    runtime.search(part.text.size(), sub.size());
    if (!part.valid) return Value::integer(0);
    if (sub.empty()) return Value::integer(static_cast<std::int64_t>(character_count(part.text)) + 1);
    std::int64_t found = 0;
    for (std::size_t at = part.text.find(sub); at != std::string_view::npos;
         at = part.text.find(sub, at + sub.size()))
        ++found;
    return Value::integer(found);
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [old, replacement, limit] =
        bound<3>(runtime, "str.replace", arguments, {"old", "new", "count"}, 2);
    const std::string& from = expect_text(runtime, old, "the first argument of str.replace");
    const std::string& to = expect_text(runtime, replacement, "the second argument of str.replace");
    std::size_t left = most_cuts(runtime, limit);
    const std::string_view text = self.text();
    runtime.search(text.size(), from.size());
    std::string result;
    if (from.empty()) {  // before every character, and at the end
        const std::vector<std::size_t> offsets = character_offsets(text);
        for (std::size_t i = 0; i < offsets.size(); ++i) {
            if (left > 0) result += to, --left;
            if (i + 1 < offsets.size()) result += text.substr(offsets[i], offsets[i + 1] - offsets[i]);
            runtime.expect_room(result.size());
        }
        return like(runtime, self, result);
    }
    std::size_t begin = 0;
    for (; left > 0; --left) {
        const std::size_t found = text.find(from, begin);
        if (found == std::string_view::npos) break;
        result += text.substr(begin, found - begin);
        result += to;
        begin = found + from.size();
        runtime.expect_room(result.size());
    }
    result += text.substr(begin);
    return like(runtime, self, result);
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [parts] = bound<1>(runtime, "str.join", arguments, {"iterable"}, 1);
    std::string result;
    bool first = true;
    for (const Value& part : items_of(runtime, parts)) {
        if (!first) result += self.text();
        first = false;
        result += expect_text(runtime, part, "an item of str.join");
        runtime.step();
        runtime.expect_room(result.size());
    }
    return like(runtime, self, result);
}

/// str.ljust and its siblings; `place` is where the text goes: < > ^.
template <char place>
Value justify(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [width, fill] = bound<2>(runtime, "str.ljust", arguments, {"width", "fillchar"}, 1);
    const std::int64_t wanted = expect_integer(runtime, width, "the width");
    const std::string with = fill.is_missing() ? " " : expect_text(runtime, fill, "the fill character");
    if (character_count(with) != 1) runtime.fail("The fill character must be exactly one character long");
    const auto size = static_cast<std::int64_t>(self.as<TextObject>().characters);
    if (wanted <= size) return self;
    const auto missing = static_cast<std::size_t>(wanted - size);
    runtime.expect_room(std::min(missing, std::size_t{1} << 60) * 4);
    // Python gives the odd blank of a centered text to the left where the width is odd.
    const std::size_t left = place == '>'   ? missing
                             : place == '^' ? missing / 2 + (missing & static_cast<std::size_t>(wanted) & 1)
                                            : 0;
    std::string result;
    for (std::size_t i = 0; i < left; ++i) result += with;
    result += self.text();
    for (std::size_t i = left; i < missing; ++i) result += with;
    return like(runtime, self, result);
}

Value zfill(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [width] = bound<1>(runtime, "str.zfill", arguments, {"width"}, 1);
    const std::int64_t wanted = expect_integer(runtime, width, "the width");
    const auto size = static_cast<std::int64_t>(self.as<TextObject>().characters);
    if (wanted <= size) return self;
    const auto missing = static_cast<std::size_t>(wanted - size);
    runtime.expect_room(missing);
    std::string result = self.text();
    const bool sign = !result.empty() && (result[0] == '-' || result[0] == '+');
    result.insert(sign ? 1 : 0, missing, '0');
    return like(runtime, self, result);
}

template <bool at_end>
Value remove_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto [wanted] = bound<1>(runtime, "str.removeprefix", arguments, {"affix"}, 1);
    const std::string& affix = expect_text(runtime, wanted, "the argument of str.removeprefix");
    const std::string_view text = self.text();
    if (at_end ? !text.ends_with(affix) : !text.starts_with(affix)) return self;
    return like(runtime, self, text.substr(at_end ? 0 : affix.size(), text.size() - affix.size()));
}

Value format(Runtime& runtime, const Value& self, const Arguments& arguments) {
    return brace_formatted(runtime, self, arguments);
}

struct TextMethod {
    std::string_view name;
    MethodFunction function;
};

constexpr TextMethod methods[] = {
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", begins_or_ends<false>},
    {"endswith", begins_or_ends<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"upper", mapped<upper_case>},
    {"lower", mapped<small_case>},
    {"casefold", mapped<folded_case>},
    {"swapcase", mapped<swapped_case>},
    {"title", mapped<title_case>},
    {"capitalize", mapped<capitalized>},
    {"ljust", justify<'<'>},
    {"rjust", justify<'>'>},
    {"center", justify<'^'>},
    {"zfill", zfill},
    {"isupper", tested<is_upper>},
    {"islower", tested<is_lower>},
    {"istitle", tested<is_title>},
    {"isspace", tested<all_spaces>},
    {"isalpha", tested<all_letters>},
    {"isdecimal", tested<all_decimals>},
    {"isdigit", tested<all_digits>},
    {"isnumeric", tested<all_numeric>},
    {"isalnum", tested<all_alphanumeric>},
    {"isprintable", tested<all_printable>},
    {"isascii", tested<is_ascii>},
    {"isidentifier", tested<is_identifier>},
};

}  // namespace

MethodFunction text_method(std::string_view name) {
    const auto* found = std::find_if(std::begin(methods), std::end(methods),
                                     [&](const TextMethod& m) { return m.name == name; });
    return found == std::end(methods) ? nullptr : found->function;
}

}  // namespace drover::jinja
