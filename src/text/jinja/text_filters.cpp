// Jinja's filters of texts, numbers and single values.
#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

#include "core/python_text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/json_text.h"
#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace drover::jinja {
namespace {

/// The method of str with that name, on str(value).
Value call_text_method(Runtime& runtime, const Value& value, std::string_view name,
                       const Arguments& arguments) {
    return text_method(name)(runtime, as_text(runtime, value), arguments);
}

Value filter_trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return call_text_method(runtime, value, "strip", arguments);
}
Value filter_upper(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return call_text_method(runtime, value, "upper", arguments);
}
Value filter_lower(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return call_text_method(runtime, value, "lower", arguments);
}
Value filter_capitalize(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return call_text_method(runtime, value, "capitalize", arguments);
}

Value filter_center(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [width] = bound<1>(runtime, "center", arguments, {"width"}, 0);
    Arguments given;
    given.positional = {width.is_missing() ? Value::integer(80) : width};
    return call_text_method(runtime, value, "center", given);
}

Value filter_replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [old, replacement, count] =
        bound<3>(runtime, "replace", arguments, {"old", "new", "count"}, 2);
    Arguments given;
    given.positional = {as_text(runtime, old), as_text(runtime, replacement)};
    if (!count.is_missing() && !count.is_none()) given.positional.push_back(count);
    const Value plain = runtime.text(text_of(runtime, value));
    return call_text_method(runtime, plain, "replace", given);
}

Value filter_title(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "title", arguments);
    const std::string text = text_of(runtime, value);
    runtime.step(text.size() / 8);
    // Words begin after white space and - ( { [ <; unlike str.title(), not after an apostrophe.
    std::string result;
    std::size_t word = 0;
    const auto finish = [&](std::size_t end) {
        if (end == word) return;
        const std::string_view whole = std::string_view(text).substr(word, end - word);
        const std::size_t first = decode_utf8(whole).length;
        result += upper_case(whole.substr(0, first)) + small_case(whole.substr(first));
    };
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Char c = decode_utf8(std::string_view(text).substr(at));
        constexpr std::string_view marks = "-({[<";
        if (is_space(c.code_point) || (c.length == 1 && marks.find(text[at]) != std::string_view::npos)) {
            finish(at);
            result += text.substr(at, c.length);
            word = at + c.length;
        }
        at += c.length;
    }
    finish(text.size());
    return runtime.text(std::move(result));
}

Value filter_string(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "string", arguments);
    return as_text(runtime, value);
}

Value filter_safe(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "safe", arguments);
    return runtime.text(text_of(runtime, value), true);
}

Value filter_escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "escape", arguments);
    return html_escaped(runtime, value);
}

Value filter_forceescape(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "forceescape", arguments);
    return html_escaped(runtime, runtime.text(text_of(runtime, value)));
}

Value filter_format(Runtime& runtime, const Value& value, const Arguments& arguments) {
    if (!arguments.positional.empty() && !arguments.named.empty())
        runtime.fail("can't handle positional and keyword arguments at the same time");
    if (arguments.named.empty())
        return percent_formatted(runtime, as_text(runtime, value), runtime.tuple(arguments.positional));
    DictObject& names = runtime.dict();
    for (const auto& [name, given] : arguments.named) set_entry(runtime, names, runtime.text(name), given);
    return percent_formatted(runtime, as_text(runtime, value), {Kind::dict, &names});
}

Value filter_indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [width, first, blank] = bound<3>(runtime, "indent", arguments, {"width", "first", "blank"}, 0);
    const std::string text = expect_text(runtime, value, "the text to indent") + "\n";
    std::string indent;
    if (width.is_text()) {
        indent = width.text();
    } else {
        const std::int64_t blanks = width.is_missing() ? 4 : expect_integer(runtime, width, "the width");
        runtime.expect_room(blanks < 0 ? 0 : static_cast<std::size_t>(blanks));
        indent.assign(blanks < 0 ? 0 : static_cast<std::size_t>(blanks), ' ');
    }
    const std::vector<std::string_view> lines = split_lines(text, false);
    std::string result = truth(first) ? indent : "";
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) {
            result += '\n';
            if (truth(blank) || !lines[i].empty()) result += indent;
        }
        result += lines[i];
        runtime.step();
        runtime.expect_room(result.size());
    }
    return runtime.text(std::move(result), value.as<TextObject>().markup);
}

Value filter_truncate(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [longest, kill, end, leeway] =
        bound<4>(runtime, "truncate", arguments, {"length", "killwords", "end", "leeway"}, 0);
    const std::int64_t wanted = longest.is_missing() ? 255 : expect_integer(runtime, longest, "the length");
    const std::int64_t spare =
        leeway.is_missing() || leeway.is_none() ? 5 : expect_integer(runtime, leeway, "the leeway");
    const Value mark = end.is_missing() ? runtime.text("...") : end;
    const auto mark_size = static_cast<std::int64_t>(character_count(expect_text(runtime, mark, "the end")));
    if (wanted < mark_size || spare < 0) runtime.fail("truncate needs a length of at least that of its end");
    const auto size = static_cast<std::int64_t>(length(runtime, value));
    if (size <= spare || size - spare <= wanted) return value;
    expect_text(runtime, value, "the text to truncate");
    std::string head = sliced(runtime, value, {}, Value::integer(wanted - mark_size), {}).text();
    if (!truth(kill))
        if (const std::size_t blank = head.rfind(' '); blank != std::string::npos) head.resize(blank);
    return runtime.text(head + mark.text());
}

Value filter_wordcount(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "wordcount", arguments);
    // Runs of \w, as Jinja counts them.
    const std::string text = text_of(runtime, value);
    runtime.step(text.size() / 8);
    std::int64_t words = 0;
    bool inside = false;
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Char c = decode_utf8(std::string_view(text).substr(at));
        const std::string_view character = std::string_view(text).substr(at, c.length);
        const bool word = character == "_" || all_alphanumeric(character);
        words += word && !inside ? 1 : 0;
        inside = word;
        at += c.length;
    }
    return Value::integer(words);
}

Value filter_tojson(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [ascii, indent, separators, sorted] =
        bound<4>(runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
    JsonStyle style;
    style.ensure_ascii = truth(ascii);
    style.sort_keys = truth(sorted);
    if (indent.is_text()) {
        style.indent = indent.text();
    } else if (!indent.is_missing() && !indent.is_none()) {
        const std::int64_t blanks = expect_integer(runtime, indent, "the indent of tojson");
        if (blanks > 1000) runtime.fail("the indent of tojson is too large");
        style.indent = std::string(blanks < 0 ? 0 : static_cast<std::size_t>(blanks), ' ');
    }
    if (style.indent) style.item_separator = ",";
    if (!separators.is_missing() && !separators.is_none()) {
        const auto parts = items_of(runtime, separators);
        if (parts.size() != 2) runtime.fail("tojson wants two separators");
        style.item_separator = expect_text(runtime, parts[0], "a separator");
        style.key_separator = expect_text(runtime, parts[1], "a separator");
    }
    return runtime.text(json_text(runtime, value, style));
}

Value filter_default(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [otherwise, boolean] =
        bound<2>(runtime, "default", arguments, {"default_value", "boolean"}, 0);
    if (!value.is_undefined() && !(truth(boolean) && !truth(value))) return value;
    return otherwise.is_missing() ? runtime.text("") : otherwise;
}

Value filter_attr(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [name] = bound<1>(runtime, "attr", arguments, {"name"}, 1);
    const std::string& wanted = expect_text(runtime, name, "the argument of attr");
    if (value.is_dict() && value.dict().find(wanted)) {
        // Unlike value.name, this finds no items.
        const Value empty{Kind::dict, &runtime.dict()};
        return attribute(runtime, empty, wanted);
    }
    return attribute(runtime, value, wanted);
}

Value filter_abs(Runtime& runtime, const Value& value, const Arguments& arguments) {
    expect_no_arguments(runtime, "abs", arguments);
    if (value.is(Kind::real)) return Value::real(std::fabs(value.number()));
    if (!value.is_whole()) runtime.fail(fmt::format("bad operand type for abs(): '{}'", type_name(value)));
    return value.whole() < 0 ? negated(runtime, value) : Value::integer(value.whole());
}

/// A text of digits with blanks around it and underscores between them, as int() and float() read it.
std::string plain_digits(Runtime& runtime, std::string_view text) {
    runtime.step(text.size() / 8);
    const std::string_view all = stripped(text, true, true);
    const auto is_digit = [](char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; };
    std::string digits;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i] != '_' || digits.empty() || !is_digit(digits.back()) || i + 1 == all.size() ||
            !is_digit(all[i + 1]))
            digits += all[i];
    if (!digits.empty() && digits[0] == '+' && digits.size() > 1 && digits[1] != '-') digits.erase(0, 1);
    return digits;
}

template <class Number, class... Base>
bool read_number(std::string_view text, Number& number, Base... base) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

/// int(value) of a number that is not whole; nothing if it does not fit.
bool truncated(double number, std::int64_t& whole) {
    if (!(std::fabs(number) < 9.2e18)) return false;
    whole = static_cast<std::int64_t>(number);
    return true;
}

Value filter_int(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [otherwise, base] = bound<2>(runtime, "int", arguments, {"default", "base"}, 0);
    const Value fallback = otherwise.is_missing() ? Value::integer(0) : otherwise;
    std::int64_t whole = 0;
    expect_defined(runtime, value);
    if (value.is_whole()) return Value::integer(value.whole());
    if (value.is(Kind::real)) return truncated(value.number(), whole) ? Value::integer(whole) : fallback;
    if (!value.is_text()) return fallback;
    const std::int64_t radix = base.is_missing() ? 10 : expect_integer(runtime, base, "the base");
    if (radix != 10 && radix != 2 && radix != 8 && radix != 16)
        runtime.fail("int knows the bases 2, 8, 10 and 16");
    std::string digits = plain_digits(runtime, value.text());
    if (radix != 10) {
        const std::size_t sign = digits.starts_with('-') ? 1 : 0;
        const char letter = radix == 2 ? 'b' : radix == 8 ? 'o' : 'x';
        if (digits.size() > sign + 1 && digits[sign] == '0' && (digits[sign + 1] | 0x20) == letter)
            digits.erase(sign, 2);
    }
    if (read_number(digits, whole, static_cast<int>(radix))) return Value::integer(whole);
    double number = 0;
    if (read_number(digits, number) && truncated(number, whole)) return Value::integer(whole);
    return fallback;
}

Value filter_float(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [otherwise] = bound<1>(runtime, "float", arguments, {"default"}, 0);
    expect_defined(runtime, value);
    if (value.is_number()) return Value::real(value.number());
    double number = 0;
    if (value.is_text() && read_number(plain_digits(runtime, value.text()), number))
        return Value::real(number);
    return otherwise.is_missing() ? Value::real(0) : otherwise;
}

Value filter_round(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto [precision, method] = bound<2>(runtime, "round", arguments, {"precision", "method"}, 0);
    const std::int64_t digits =
        precision.is_missing() ? 0 : expect_integer(runtime, precision, "the precision");
    if (digits < 0 || digits > 300) runtime.fail("round wants a precision from 0 to 300");
    expect_defined(runtime, value);
    if (!value.is_number()) runtime.fail(fmt::format("type {} cannot be rounded", type_name(value)));
    const std::string how = method.is_missing() ? "common" : expect_text(runtime, method, "the method");
    if (how == "common")
        return value.is_whole() ? Value::integer(value.whole())
                                : Value::real(python_round(value.number(), static_cast<int>(digits)));
    if (how != "ceil" && how != "floor") runtime.fail("method must be common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(digits));
    const double scaled = value.number() * scale;
    return Value::real((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

}  // namespace

std::vector<Named<Filter>> text_filters() {
    return {
        {"abs", filter_abs},
        {"attr", filter_attr},
        {"capitalize", filter_capitalize},
        {"center", filter_center},
        {"d", filter_default},
        {"default", filter_default},
        {"e", filter_escape},
        {"escape", filter_escape},
        {"float", filter_float},
        {"forceescape", filter_forceescape},
        {"format", filter_format},
        {"indent", filter_indent},
        {"int", filter_int},
        {"lower", filter_lower},
        {"replace", filter_replace},
        {"round", filter_round},
        {"safe", filter_safe},
        {"string", filter_string},
        {"title", filter_title},
        {"tojson", filter_tojson},
        {"trim", filter_trim},
        {"truncate", filter_truncate},
        {"upper", filter_upper},
        {"wordcount", filter_wordcount},
    };
}

}  // namespace drover::jinja
