#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace drover {

/// How an argument's value is written and its type.
enum class ArgumentType : std::uint8_t {
    boolean,           ///< yes/no words; the bare flag is true; `--no_x` is false
    optional_boolean,  ///< yes/no words; unset: the program decides; needs a value
    integer,
    number,
    text,
    words,   ///< one or more words; repeated flags add to the list
    json,    ///< an object as JSON text, or the path of a JSON file
    choice,  ///< one of `choices`
};

/// What giving an argument does.
enum class Standing : std::uint8_t {
    acts,
    parallel,   ///< read and checked; takes effect when several processes train together
    explained,  ///< accepted; its note explains what it means here
};

/// A row of the argument table.
struct Argument {
    std::string_view name;
    ArgumentType type = ArgumentType::text;
    std::string_view default_text{};  ///< as on the command line; empty: unset
    std::string_view help{};
    Standing standing = Standing::acts;
    std::string_view note{};     ///< of an explained argument: the line printed when it is given
    std::string_view choices{};  ///< separated by '|'
    double least = -std::numeric_limits<double>::infinity();
    double most = std::numeric_limits<double>::infinity();
    /// It concerns paths or messages, not what is computed, so processes of a run may have different values.
    /// (Config and tokenizer are compared by content.)
    bool may_differ_between_processes = false;
    /// Its text names a file or a folder (or a repository of the Hub).
    bool is_path = false;
    /// Only the command uses it: a program that uses the library has its own objects or calls for it.
    bool is_for_command_only = false;
    /// For those who work on the program: help, man pages, completion and docs do not show it.
    bool is_hidden = false;

    constexpr bool is_boolean() const {
        return type == ArgumentType::boolean || type == ArgumentType::optional_boolean;
    }

    constexpr Argument parallel() const {
        Argument copy = *this;
        copy.standing = Standing::parallel;
        return copy;
    }
    constexpr Argument explained(std::string_view line) const {
        Argument copy = *this;
        copy.standing = Standing::explained;
        copy.note = line;
        return copy;
    }
    constexpr Argument own_of_process() const {
        Argument copy = *this;
        copy.may_differ_between_processes = true;
        return copy;
    }
    constexpr Argument of_command() const {
        Argument copy = *this;
        copy.is_for_command_only = true;
        return copy;
    }
    constexpr Argument hidden() const {
        Argument copy = *this;
        copy.is_hidden = true;
        return copy;
    }
    constexpr Argument at_least(double value) const {
        Argument copy = *this;
        copy.least = value;
        return copy;
    }
    constexpr Argument at_most(double value) const {
        Argument copy = *this;
        copy.most = value;
        return copy;
    }
};

/// Helpers for writing the tables.
namespace table {

/// Limits of factors that are multiplied with each other (rows, tokens of a row, micro-batches), and of
/// updates. No run comes near them, and their products still fit or are detected as too large.
constexpr double most_of_a_batch = 2147483647;
constexpr double most_updates = 1e12;
constexpr double most_threads = 4096;
constexpr double most_processes = 1048576;
constexpr double most_seconds = 1e9;

constexpr Argument flag(std::string_view name, std::string_view default_text, std::string_view help) {
    return {.name = name, .type = ArgumentType::boolean, .default_text = default_text, .help = help};
}
constexpr Argument maybe(std::string_view name, std::string_view help) {
    return {.name = name, .type = ArgumentType::optional_boolean, .help = help};
}
constexpr Argument integer(std::string_view name, std::string_view default_text, std::string_view help) {
    return {.name = name, .type = ArgumentType::integer, .default_text = default_text, .help = help};
}
constexpr Argument number(std::string_view name, std::string_view default_text, std::string_view help) {
    return {.name = name, .type = ArgumentType::number, .default_text = default_text, .help = help};
}
constexpr Argument text(std::string_view name, std::string_view default_text, std::string_view help) {
    return {.name = name, .type = ArgumentType::text, .default_text = default_text, .help = help};
}
constexpr Argument path(std::string_view name, std::string_view default_text, std::string_view help) {
    return {.name = name,
            .type = ArgumentType::text,
            .default_text = default_text,
            .help = help,
            .is_path = true};
}
constexpr Argument words(std::string_view name, std::string_view default_text, std::string_view help) {
    return {.name = name, .type = ArgumentType::words, .default_text = default_text, .help = help};
}
constexpr Argument json(std::string_view name, std::string_view help) {
    return {.name = name, .type = ArgumentType::json, .help = help};
}
constexpr Argument choice(std::string_view name, std::string_view choices, std::string_view default_text,
                          std::string_view help) {
    return {.name = name,
            .type = ArgumentType::choice,
            .default_text = default_text,
            .help = help,
            .choices = choices};
}

}  // namespace table
}  // namespace drover
