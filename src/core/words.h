#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace drover {

/// Number of single-character insertions, deletions, replacements and swaps of adjacent characters between
/// two words.
std::size_t edit_distance(std::string_view left, std::string_view right);

/// The name that was most likely meant by `word`; empty if none is close.
std::string nearest_name(std::string_view word, std::span<const std::string> names);

/// "Did you mean \"x\"?", or `otherwise` if no name is close.
std::string did_you_mean(std::string_view word, std::span<const std::string> names, std::string_view prefix,
                         std::string_view otherwise);

/// ASCII letters only.
std::string lower_case(std::string_view text);

/// Names of flags and commands may be written with hyphens or underscores: those with underscores.
std::string with_underscores(std::string_view name);

/// Example: "a, b or c".
std::string either_of(std::span<const std::string> words);

/// The pairs of "key=value,key=value", the syntax of --optim_args and --config_overrides; UsageError names
/// `where`.
std::vector<std::pair<std::string, std::string>> key_values(std::string_view text, std::string_view where);

/// The words of a text on lines of at most `columns`, each after `margin` spaces.
std::string wrapped_text(std::string_view text, std::size_t margin, std::size_t columns);

/// The parts of "a|b|c".
std::vector<std::string> split_words(std::string_view text, char separator);

}  // namespace drover
