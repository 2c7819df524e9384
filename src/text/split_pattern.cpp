#include "text/split_pattern.h"

#include <string>

#include "text/char_class.h"
#include "text/utf8.h"

namespace drover {

const std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using namespace char_class;

struct Character {
    char32_t code;
    unsigned length;  // 0 past the end
    std::uint8_t bits;

    bool is(unsigned wanted) const { return (bits & wanted) != 0; }
    /// Neither letter, number nor space, nor the end.
    bool other() const { return length != 0 && !is(letter | number | space); }
    bool newline() const { return length != 0 && (code == '\r' || code == '\n'); }
};

/// Reads characters of a text that is known to be UTF-8.
class CharacterReader {
  public:
    explicit CharacterReader(std::string_view text) : text_(text) {}
    std::size_t size() const { return text_.size(); }

    Character at(std::size_t i) const {
        if (i >= text_.size()) return {0, 0, 0};
        const auto byte = static_cast<unsigned char>(text_[i]);
        if (byte < 0x80) return {byte, 1, classes_[byte]};
        const Utf8Char c = decode_utf8(text_.substr(i));
        return {c.code_point, c.length, classes_[c.code_point]};
    }
    /// The first position from `i` on whose character has none of these bits set.
    std::size_t skip(std::size_t i, unsigned bits) const {
        for (;;) {
            const Character c = at(i);
            if (c.length == 0 || !c.is(bits)) return i;
            i += c.length;
        }
    }
    std::size_t skip_others(std::size_t i) const {
        for (;;) {
            const Character c = at(i);
            if (!c.other()) return i;
            i += c.length;
        }
    }
    std::size_t skip_newlines(std::size_t i) const {
        while (i < text_.size() && (text_[i] == '\r' || text_[i] == '\n')) ++i;
        return i;
    }

  private:
    std::string_view text_;
    const std::uint8_t* classes_ = char_classes();
};

/// End of 's, 't, 're, 've, 'm, 'll or 'd at an apostrophe at `i`; `i` itself if there is none.
template <bool ignore_case>
std::size_t end_of_contraction(const CharacterReader& text, std::size_t i) {
    const auto lower = [&](Character c) -> char32_t {
        if (!ignore_case) return c.code;
        if (c.code == 0x17F) return 's';  // long s, the only other character that folds to one of these
        return c.code >= 'A' && c.code <= 'Z' ? c.code + 32 : c.code;
    };
    const Character first = text.at(i + 1);
    if (first.length == 0) return i;
    const std::size_t after = i + 1 + first.length;
    switch (lower(first)) {
        case 's':
        case 't':
        case 'm':
        case 'd':
            return after;
        case 'r':
        case 'v': {
            const Character second = text.at(after);
            return second.length != 0 && lower(second) == 'e' ? after + 1 : i;
        }
        case 'l': {
            const Character second = text.at(after);
            return second.length != 0 && lower(second) == 'l' ? after + 1 : i;
        }
        default:
            return i;
    }
}

/// End of what \s+(?!\S)|\s+ takes from a run of spaces: all of it at the end of the text, otherwise all but
/// its last character, which belongs to the next match.
std::size_t end_of_spaces(const CharacterReader& text, std::size_t i, std::size_t run_end, std::size_t last) {
    return run_end == text.size() || last == i ? run_end : last;
}

std::size_t end_of_llama3_match(const CharacterReader& text, std::size_t i) {
    const Character first = text.at(i);
    if (first.is(letter)) return text.skip(i + first.length, letter);
    if (first.code == '\'') {
        const std::size_t end = end_of_contraction<true>(text, i);
        if (end != i) return end;
    }
    if (first.is(number)) {
        std::size_t end = i;
        for (int digits = 0; digits < 3; ++digits) {
            const Character c = text.at(end);
            if (!c.is(number)) break;
            end += c.length;
        }
        return end;
    }
    const std::size_t next = i + first.length;
    const Character second = text.at(next);
    if (!first.newline() && second.is(letter)) return text.skip(next + second.length, letter);
    if (first.other()) return text.skip_newlines(text.skip_others(next));
    if (first.code == ' ' && second.other())
        return text.skip_newlines(text.skip_others(next + second.length));

    std::size_t run_end = i, last = i, after_newline = i;
    for (Character c = first; c.is(space); c = text.at(run_end)) {
        last = run_end;
        run_end += c.length;
        if (c.newline()) after_newline = run_end;
    }
    return after_newline != i ? after_newline : end_of_spaces(text, i, run_end, last);
}

std::size_t end_of_gpt2_match(const CharacterReader& text, std::size_t i) {
    const Character first = text.at(i);
    if (first.code == '\'') {
        const std::size_t end = end_of_contraction<false>(text, i);
        if (end != i) return end;
    }
    // An optional space, then a run of one kind.
    const std::size_t start = first.code == ' ' ? i + 1 : i;
    const Character c = first.code == ' ' ? text.at(start) : first;
    if (c.is(letter)) return text.skip(start + c.length, letter);
    if (c.is(number)) return text.skip(start + c.length, number);
    if (c.other()) return text.skip_others(start + c.length);

    std::size_t run_end = i, last = i;
    for (Character s = first; s.is(space); s = text.at(run_end)) {
        last = run_end;
        run_end += s.length;
    }
    return end_of_spaces(text, i, run_end, last);
}

/// A pattern in which every character is part of a match.
template <std::size_t (*end_of_match)(const CharacterReader&, std::size_t)>
class KnownPattern : public SplitPattern {
  public:
    void find_all(std::string_view text, std::vector<Span>& matches) const override {
        const CharacterReader reader(text);
        for (std::size_t i = 0; i < text.size();) {
            const std::size_t end = end_of_match(reader, i);
            matches.push_back({i, end});
            i = end;
        }
    }
    // A run of letters ends a match, whatever follows, and nothing in the pattern looks back.
    bool allows_cut_between_words() const override { return true; }
};

class PcrePattern : public SplitPattern {
  public:
    PcrePattern(std::string_view pattern, std::string_view where) : regex_(pattern, where) {}
    void find_all(std::string_view text, std::vector<Span>& matches) const override {
        regex_.find_all(text, matches);
    }

  private:
    Regex regex_;
};

class TextPattern : public SplitPattern {
  public:
    explicit TextPattern(std::string_view wanted) : wanted_(wanted) {}
    void find_all(std::string_view text, std::vector<Span>& matches) const override {
        for (std::size_t i = text.find(wanted_); i != text.npos; i = text.find(wanted_, i + wanted_.size()))
            matches.push_back({i, i + wanted_.size()});
    }

  private:
    std::string wanted_;
};

class ClassPattern : public SplitPattern {
  public:
    ClassPattern(unsigned bits, bool ascii_punctuation)
        : bits_(bits), ascii_punctuation_(ascii_punctuation) {}
    void find_all(std::string_view text, std::vector<Span>& matches) const override {
        const CharacterReader reader(text);
        for (std::size_t i = 0; i < text.size();) {
            const Character c = reader.at(i);
            const bool symbol = ascii_punctuation_ && c.code > ' ' && c.code < 0x7F && !c.is(letter | number);
            if (c.is(bits_) || symbol) matches.push_back({i, i + c.length});
            i += c.length;
        }
    }

  private:
    unsigned bits_;
    bool ascii_punctuation_;
};

class WordsPattern : public SplitPattern {
  public:
    void find_all(std::string_view text, std::vector<Span>& matches) const override {
        const CharacterReader reader(text);
        for (std::size_t i = 0; i < text.size();) {
            const Character first = reader.at(i);
            std::size_t end = i + first.length;
            if (first.is(word)) {
                end = reader.skip(end, word);
            } else if (!first.is(space)) {
                for (Character c = reader.at(end); c.length != 0 && !c.is(word | space); c = reader.at(end))
                    end += c.length;
            }
            if (!first.is(space) || first.is(word)) matches.push_back({i, end});
            i = end;
        }
    }
};

}  // namespace

std::unique_ptr<SplitPattern> pcre_split_pattern(std::string_view pattern, std::string_view where) {
    return std::make_unique<PcrePattern>(pattern, where);
}

std::unique_ptr<SplitPattern> regex_pattern(std::string_view pattern, std::string_view where) {
    if (pattern == llama3_pattern) return std::make_unique<KnownPattern<end_of_llama3_match>>();
    if (pattern == gpt2_pattern) return std::make_unique<KnownPattern<end_of_gpt2_match>>();
    return pcre_split_pattern(pattern, where);
}

std::unique_ptr<SplitPattern> text_pattern(std::string_view wanted) {
    return std::make_unique<TextPattern>(wanted);
}

std::unique_ptr<SplitPattern> class_pattern(unsigned bits, bool ascii_punctuation) {
    return std::make_unique<ClassPattern>(bits, ascii_punctuation);
}

std::unique_ptr<SplitPattern> words_pattern() {
    return std::make_unique<WordsPattern>();
}

}  // namespace drover
