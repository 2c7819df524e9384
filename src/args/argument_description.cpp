#include "args/argument_description.h"

#include <fmt/format.h>

#include <cmath>

#include "core/words.h"

namespace drover {
namespace {

std::string_view kind_name(const Argument& argument) {
    switch (argument.type) {
        case ArgumentType::boolean:
        case ArgumentType::optional_boolean:
            return "yes|no";
        case ArgumentType::integer:
            return "integer";
        case ArgumentType::number:
            return "number";
        case ArgumentType::text:
            return argument.is_path ? "path" : "text";
        case ArgumentType::words:
            return "words";
        case ArgumentType::json:
            return "JSON or file";
        case ArgumentType::choice:
            return "";
    }
    return "";
}

/// " from 1 to 8", " of 1 or more", or nothing.
std::string range_text(const Argument& argument) {
    if (std::isinf(argument.least) && std::isinf(argument.most)) return "";
    if (std::isinf(argument.most)) return fmt::format(" of {} or more", argument.least);
    if (std::isinf(argument.least)) return fmt::format(" of at most {}", argument.most);
    return fmt::format(" from {} to {}", argument.least, argument.most);
}

}  // namespace

std::string kind_text(const Argument& argument) {
    constexpr std::size_t longest = 60;
    if (argument.type != ArgumentType::choice) return std::string(kind_name(argument));
    return argument.choices.size() <= longest ? std::string(argument.choices) : "choice";
}

std::string type_text(const Argument& argument) {
    switch (argument.type) {
        case ArgumentType::boolean:
        case ArgumentType::optional_boolean:
            return "yes or no";
        case ArgumentType::integer:
            return "a whole number" + range_text(argument);
        case ArgumentType::number:
            return "a number" + range_text(argument);
        case ArgumentType::text:
            return argument.is_path ? "a path" : "a text";
        case ArgumentType::words:
            return "one or more words";
        case ArgumentType::json:
            return "a JSON object, or the path of a file with one";
        case ArgumentType::choice:
            return "one of " + either_of(split_words(argument.choices, '|'));
    }
    return "";
}

std::string meaning_text(const Argument& argument) {
    std::string text(argument.help);
    if (argument.type == ArgumentType::choice && kind_text(argument) == "choice") {
        std::string choices;
        for (const char letter : argument.choices)
            choices += letter == '|' ? std::string(", ") : std::string(1, letter);
        text += " Choices: " + choices + ".";
    }
    return text;
}

std::string aliases_text(const ArgumentTable& table, const Argument& argument, std::string_view quote) {
    std::string names;
    for (const ArgumentAlias& alias : table.aliases())
        if (alias.stands_for == argument.name)
            names += fmt::format("{}{}--{}{}", names.empty() ? "" : ", ", quote, alias.name, quote);
    return names;
}

std::string_view standing_text(Standing standing) {
    switch (standing) {
        case Standing::acts:
            return "acts";
        case Standing::parallel:
            return "several processes";
        case Standing::explained:
            return "explained";
    }
    return "";
}

}  // namespace drover
