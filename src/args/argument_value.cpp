#include "args/argument_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "args/argument_description.h"
#include "core/error.h"
#include "core/json_text.h"
#include "core/words.h"

namespace drover {
namespace {

/// Alternative spellings of a choice.
struct Synonym {
    std::string_view written, choice;
};
constexpr std::array synonyms{
    Synonym{"bf16", "bfloat16"}, Synonym{"fp16", "float16"},  Synonym{"fp32", "float32"},
    Synonym{"half", "float16"},  Synonym{"float", "float32"}, Synonym{"yes", "all"},
    Synonym{"true", "all"},      Synonym{"1", "all"},         Synonym{"false", "no"},
    Synonym{"none", "no"},
};

/// Arguments are stored as JSON and saved with every checkpoint.
void check_utf8(std::string_view text, std::string_view where) {
    const Json value(text);
    try {
        value.dump();
    } catch (const Json::type_error&) {
        throw UsageError(fmt::format("{} is {}, which is not UTF-8.", where,
                                     value.dump(-1, ' ', false, Json::error_handler_t::replace)),
                         "Write it as UTF-8; a file can be given another name or a symbolic link.");
    }
}

Json read_choice(const Argument& argument, std::string_view text, std::string_view where) {
    const std::vector<std::string> choices = split_words(argument.choices, '|');
    const auto known = [&](std::string_view word) {
        return std::find(choices.begin(), choices.end(), word) != choices.end();
    };
    if (known(text)) return std::string(text);
    const std::string lower = lower_case(text);
    if (known(lower)) return lower;
    for (const Synonym& synonym : synonyms)
        if (synonym.written == lower && known(synonym.choice)) return std::string(synonym.choice);
    const std::string nearest = nearest_name(lower, choices);
    throw UsageError(fmt::format("{} is \"{}\", which is not one of its choices{}.", where, text,
                                 nearest.empty() ? "" : fmt::format("; the nearest is {}", nearest)),
                     fmt::format("Use {}.", either_of(choices)));
}

void check_range(const Argument& argument, double value, std::string_view written, std::string_view where) {
    if (value >= argument.least && value <= argument.most) return;
    throw UsageError(
        fmt::format("{} is {}, which is too {}.", where, written, value < argument.least ? "small" : "large"),
        std::isinf(argument.most) ? fmt::format("Use {} or more.", argument.least)
        : std::isinf(argument.least)
            ? fmt::format("Use {} or less.", argument.most)
            : fmt::format("Use a number from {} to {}.", argument.least, argument.most));
}

Json read_integer(const Argument& argument, std::string_view text, std::string_view where) {
    const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range && end == digits.data() + digits.size())
        throw UsageError(fmt::format("{} is {}, which is too {}.", where, text,
                                     digits.starts_with('-') ? "small" : "large"),
                         "Use a number of fewer digits.");
    if (error != std::errc() || end != digits.data() + digits.size())
        throw UsageError(fmt::format("{} is \"{}\", which is not a whole number.", where, text),
                         "Write digits only, for example 8.");
    check_range(argument, static_cast<double>(value), text, where);
    return value;
}

Json read_number(const Argument& argument, std::string_view text, std::string_view where) {
    const std::optional<double> value = number_from_text(text);
    if (!value)
        throw UsageError(fmt::format("{} is \"{}\", which is not a finite number.", where, text),
                         "Write it as 3, 0.5 or 5e-5.");
    check_range(argument, *value, text, where);
    return *value;
}

/// Converts string leaves of JSON text on a command line: words for booleans and digits become booleans and
/// numbers.
void convert_leaves(Json& value) {
    if (value.is_object() || value.is_array()) {
        for (Json& member : value) convert_leaves(member);
        return;
    }
    if (!value.is_string()) return;
    const std::string text = value.get<std::string>();
    const std::string lower = lower_case(text);
    if (lower == "true" || lower == "false") {
        value = lower == "true";
        return;
    }
    const bool digits = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
    if (!digits || text.front() == '.') return;
    const auto dots = std::count(text.begin(), text.end(), '.');
    std::int64_t whole = 0;
    if (dots == 0 && std::from_chars(text.data(), text.data() + text.size(), whole).ec == std::errc())
        value = whole;
    else if (const auto number = number_from_text(text); dots == 1 && number)
        value = *number;
}

Json read_object(std::string_view text, std::string_view where) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_text = first != std::string_view::npos && text[first] == '{';
    Json value;
    try {
        value = is_text ? parse_json(text, where) : read_json_file(with_home(text));
    } catch (const Error& error) {
        if (is_text)
            throw UsageError(error.cause(), "Write one JSON object, in single quotes for the shell.");
        throw Error(fmt::format("{} names a file that cannot be used: {}", where, error.cause()),
                    error.remedy());
    }
    if (!value.is_object())
        throw UsageError(fmt::format("{} does not give a JSON object.", where), "Write {\"key\": value, …}.");
    if (is_text) convert_leaves(value);
    return value;
}

}  // namespace

std::optional<bool> boolean_from_word(std::string_view word) {
    const std::string lower = lower_case(word);
    for (const char* yes : {"yes", "true", "t", "y", "1"})
        if (lower == yes) return true;
    for (const char* no : {"no", "false", "f", "n", "0"})
        if (lower == no) return false;
    return std::nullopt;
}

std::optional<double> number_from_text(std::string_view text) {
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

std::string with_home(std::string_view path) {
    const char* home = std::getenv("HOME");
    if (home == nullptr || !(path == "~" || path.starts_with("~/"))) return std::string(path);
    return home + std::string(path.substr(1));
}

Json value_from_text(const Argument& argument, std::string_view text, std::string_view where) {
    check_utf8(text, where);
    switch (argument.type) {
        case ArgumentType::boolean:
        case ArgumentType::optional_boolean:
            if (const std::optional<bool> value = boolean_from_word(text)) return *value;
            throw UsageError(fmt::format("{} is \"{}\", which is neither yes nor no.", where, text),
                             "Use yes, true, t, y or 1; or no, false, f, n or 0.");
        case ArgumentType::integer:
            return read_integer(argument, text, where);
        case ArgumentType::number:
            return read_number(argument, text, where);
        case ArgumentType::text:
            return std::string(text);
        case ArgumentType::words:
            return split_words(text, ' ');
        case ArgumentType::json:
            return read_object(text, where);
        case ArgumentType::choice:
            return read_choice(argument, text, where);
    }
    bug("an argument of no type");
}

Json value_from_json(const Argument& argument, const Json& value, std::string_view where) {
    if (value.is_string()) return value_from_text(argument, value.get<std::string>(), where);
    if (argument.type == ArgumentType::json && value.is_object()) return value;
    if (argument.type == ArgumentType::words && value.is_array() &&
        std::all_of(value.begin(), value.end(), [](const Json& word) { return word.is_string(); }))
        return value;
    if (argument.is_boolean() && value.is_boolean()) return value;
    if (value.is_number() && argument.type == ArgumentType::number) {
        check_range(argument, value.get<double>(), value.dump(), where);
        return value.get<double>();
    }
    if (argument.type == ArgumentType::integer && value.is_number() && std::abs(value.get<double>()) < 9e15 &&
        value.get<double>() == std::floor(value.get<double>())) {
        check_range(argument, value.get<double>(), value.dump(), where);
        return value.get<std::int64_t>();
    }
    if (argument.type == ArgumentType::choice && value.is_boolean())
        return read_choice(argument, value.get<bool>() ? "true" : "false", where);
    throw UsageError(fmt::format("{} is {}, but it takes {}.", where, value.dump(), type_text(argument)),
                     fmt::format("`--help {}` of the command says what it means.", argument.name));
}

Json default_value(const Argument& argument) {
    if (argument.default_text.empty())
        return argument.type == ArgumentType::words ? Json::array() : Json(nullptr);
    return value_from_text(argument, argument.default_text, argument.name);
}

}  // namespace drover
