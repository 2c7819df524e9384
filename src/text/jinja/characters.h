#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// What Python's str does with single characters. Texts are UTF-8 and positions count code points.
namespace drover::jinja {

std::size_t character_count(std::string_view text);

/// Where each character begins, and the end of the text.
std::vector<std::size_t> character_offsets(std::string_view text);

/// str.isspace() of one character.
bool is_space(char32_t character);
/// The text without white space at its ends, or without any of the characters of `chars`.
std::string_view stripped(std::string_view text, bool left, bool right);
std::string_view stripped_of(std::string_view text, std::string_view chars, bool left, bool right);
/// str.split() without a separator; at most `limit` cuts.
std::vector<std::string_view> split_at_spaces(std::string_view text, std::size_t limit);
/// The same from the right.
std::vector<std::string_view> split_at_spaces_from_right(std::string_view text, std::size_t limit);
/// str.splitlines().
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string upper_case(std::string_view text);
std::string small_case(std::string_view text);
std::string folded_case(std::string_view text);
std::string swapped_case(std::string_view text);
/// str.title(): every letter that follows no letter.
std::string title_case(std::string_view text);
std::string capitalized(std::string_view text);

bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
bool is_title(std::string_view text);
/// Whether there are characters and all are of that class.
bool all_spaces(std::string_view text);
bool all_letters(std::string_view text);
bool all_decimals(std::string_view text);
bool all_digits(std::string_view text);
bool all_numeric(std::string_view text);
bool all_alphanumeric(std::string_view text);
bool all_printable(std::string_view text);
bool is_ascii(std::string_view text);
bool is_identifier(std::string_view text);

/// repr() of a str.
std::string python_quoted(std::string_view text);

}  // namespace drover::jinja
