#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace drover::test {

/// The `Kind` that `action` throws. Fails the test, at the call site, if nothing or something else is thrown,
/// or an error for the user without a remedy.
template <class Kind, class Action>
std::optional<Kind> caught(Action&& action, const CodePlace& where) {
    try {
        action();
        ADD_FAILURE_AT(where.file, where.line) << "no error was thrown";
    } catch (const Kind& error) {
        if constexpr (std::is_same_v<Kind, Error> || std::is_same_v<Kind, UsageError>)
            if (error.remedy().empty())
                ADD_FAILURE_AT(where.file, where.line) << "no remedy: " << error.what();
        return error;
    } catch (const std::exception& other) {
        ADD_FAILURE_AT(where.file, where.line) << "another error was thrown: " << other.what();
    }
    return std::nullopt;
}

/// The text of the error that `action` must throw, cause and remedy.
template <class Kind = Error, class Action>
std::string error_of(Action&& action, const CodePlace& where = CodePlace::here()) {
    const std::optional<Kind> error = caught<Kind>(std::forward<Action>(action), where);
    return error ? error->what() : "";
}

/// The same without the remedy.
template <class Kind = Error, class Action>
std::string cause_of(Action&& action, const CodePlace& where = CodePlace::here()) {
    const std::optional<Kind> error = caught<Kind>(std::forward<Action>(action), where);
    return error ? error->cause() : "";
}

/// Expects `action` to throw a `Kind` whose text contains all of `parts`: what is wrong, and where.
template <class Kind = Error, class Action>
void expect_error(Action&& action, std::initializer_list<std::string_view> parts,
                  const CodePlace& where = CodePlace::here()) {
    const std::optional<Kind> error = caught<Kind>(std::forward<Action>(action), where);
    if (!error) return;
    const std::string message = error->what();
    for (const std::string_view part : parts)
        if (message.find(part) == std::string::npos)
            ADD_FAILURE_AT(where.file, where.line) << "no \"" << part << "\" in: " << message;
}

}  // namespace drover::test
