#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace drover {

/// Finds the matches that a pre-tokenizer splits at. May be used by several threads at once.
class SplitPattern {
  public:
    virtual ~SplitPattern() = default;
    /// Appends all matches in order, without overlaps and without empty ones. `text` is UTF-8.
    virtual void find_all(std::string_view text, std::vector<Span>& matches) const = 0;
    /// Whether a text can be cut before a space between two ASCII letters: the matches of both parts are then
    /// those of the whole.
    virtual bool allows_cut_between_words() const { return false; }
};

/// The patterns of Llama-3 and GPT-2, which have their own matchers.
extern const std::string_view llama3_pattern;
extern const std::string_view gpt2_pattern;

/// A regular expression; uses a hand-written matcher if it is exactly one of the two above.
std::unique_ptr<SplitPattern> regex_pattern(std::string_view pattern, std::string_view where);
/// The same, always with PCRE2.
std::unique_ptr<SplitPattern> pcre_split_pattern(std::string_view pattern, std::string_view where);
/// Every occurrence of a text that is not empty.
std::unique_ptr<SplitPattern> text_pattern(std::string_view wanted);
/// Every character that has one of these bits of char_class.h; with `ascii_punctuation` also ASCII symbols.
std::unique_ptr<SplitPattern> class_pattern(unsigned bits, bool ascii_punctuation = false);
/// Runs of word characters, and runs of characters that are neither word nor space.
std::unique_ptr<SplitPattern> words_pattern();

}  // namespace drover
