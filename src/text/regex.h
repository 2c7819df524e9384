#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Begin and end of a match, in bytes.
struct Span {
    std::size_t begin, end;
    bool operator==(const Span&) const = default;
};

/// A regular expression in the syntax of tokenizer files (Oniguruma's), run by PCRE2: UTF-8, Unicode classes,
/// ^ and $ at every line. May be used by several threads at once.
class Regex {
  public:
    /// Error, naming `where`, if the pattern is not supported.
    Regex(std::string_view pattern, std::string_view where);
    ~Regex();
    Regex(Regex&&) noexcept;
    Regex& operator=(Regex&&) noexcept;

    /// Appends all matches in order; they do not overlap, and empty ones are left out. `text` is UTF-8.
    void find_all(std::string_view text, std::vector<Span>& matches) const;

  private:
    struct Code;
    std::unique_ptr<Code> code_;
};

/// Translates the pattern to PCRE2 where the two differ: \s, \w and \h mean Oniguruma's classes.
std::string pcre_pattern(std::string_view pattern);

}  // namespace drover
