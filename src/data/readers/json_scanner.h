#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace drover {

/// Reads one JSON value from beginning to end without storing it. NaN, Infinity and -Infinity count as
/// numbers, as Python writes them. Error, starting with `place`, for anything that is not JSON.
class JsonScanner {
  public:
    JsonScanner(std::string_view text, std::string_view place) : text_(text), place_(place) {}

    /// The first character of the next value, key or punctuation mark; '\0' at the end.
    char peek();
    /// Consumes `mark` if it comes next.
    bool take(char mark);
    /// Consumes `mark` or fails.
    void expect(char mark);
    /// Reads a string; replaces `value`.
    void string(std::string& value);
    /// Skips a value of any kind.
    void skip_value(int depth = 0);
    /// Fails unless everything was read.
    void end();

  private:
    void skip_string();
    void skip_number();
    char32_t hexadecimal();
    [[noreturn]] void fail(std::string_view what) const;

    std::string_view text_;
    std::string_view place_;
    std::size_t at_ = 0;
};

}  // namespace drover
