#include "text/jinja/characters.h"

#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "text/utf8.h"

namespace drover::jinja {
namespace {

/// Calls `use(code point, begin, length)` for every character until it returns false.
template <class Use>
bool for_characters(std::string_view text, Use&& use) {
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Char c = decode_utf8(text.substr(at));
        const std::size_t length = std::max(1u, c.length);
        if (!use(c.length ? c.code_point : U'\uFFFD', at, length)) return false;
        at += length;
    }
    return true;
}

/// The last character of a text that is not empty.
std::string_view last_character(std::string_view text) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    return text.substr(begin);
}

template <class Drop>
std::string_view stripped_where(std::string_view text, bool left, bool right, Drop&& drop) {
    while (left && !text.empty()) {
        const Utf8Char c = decode_utf8(text);
        if (!drop(text.substr(0, c.length), c.code_point)) break;
        text.remove_prefix(c.length);
    }
    while (right && !text.empty()) {
        const std::string_view last = last_character(text);
        if (!drop(last, decode_utf8(last).code_point)) break;
        text.remove_suffix(last.size());
    }
    return text;
}

bool is_line_end(char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::string ascii_mapped(std::string_view text, char first, char last) {
    std::string result(text);
    for (char& c : result)
        if (c >= first && c <= last) c ^= 0x20;
    return result;
}

icu::UnicodeString unicode(std::string_view text) {
    return icu::UnicodeString::fromUTF8({text.data(), static_cast<int>(text.size())});
}

std::string utf8(const icu::UnicodeString& text) {
    std::string result;
    return text.toUTF8String(result);
}

bool cased(char32_t c) {
    return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED);
}
bool upper(char32_t c) {
    return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_UPPERCASE);
}
bool lower(char32_t c) {
    return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_LOWERCASE);
}
bool title(char32_t c) {
    return u_charType(static_cast<UChar32>(c)) == U_TITLECASE_LETTER;
}
bool decimal(char32_t c) {
    return u_charType(static_cast<UChar32>(c)) == U_DECIMAL_DIGIT_NUMBER;
}
bool digit(char32_t c) {
    const auto type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
    return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool numeric(char32_t c) {
    return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}
bool letter(char32_t c) {
    return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0;
}
bool printable(char32_t c) {
    constexpr std::uint32_t hidden = U_GC_C_MASK | U_GC_Z_MASK;
    return c == U' ' || (U_GET_GC_MASK(static_cast<UChar32>(c)) & hidden) == 0;
}

template <class Test>
bool all(std::string_view text, Test&& test) {
    return !text.empty() && for_characters(text, [&](char32_t c, auto, auto) { return test(c); });
}

/// Whether some character has `wanted`, and none has `unwanted`.
template <class Wanted, class Unwanted>
bool has_case(std::string_view text, Wanted&& wanted, Unwanted&& unwanted) {
    bool found = false;
    return for_characters(text,
                          [&](char32_t c, auto, auto) {
                              found = found || wanted(c);
                              return !unwanted(c);
                          }) &&
           found;
}

constexpr char32_t capital_sigma = 0x3A3, final_sigma = 0x3C2;

/// Whether no letter with a case follows, which gives a sigma its other form.
bool ends_word(std::string_view rest) {
    bool ends = true;
    for_characters(rest, [&](char32_t c, auto, auto) {
        if (u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASE_IGNORABLE)) return true;
        ends = !cased(c);
        return false;
    });
    return ends;
}

void append_title(std::string& result, char32_t c) {
    // Characters such as ß and ﬁ have no title case of one character.
    const icu::UnicodeString single(static_cast<UChar32>(c));
    const auto simple = u_totitle(static_cast<UChar32>(c));
    const icu::UnicodeString whole = icu::UnicodeString(single).toUpper(icu::Locale::getRoot());
    if (static_cast<char32_t>(simple) == c && whole.countChar32() > 1) {
        icu::UnicodeString rest = whole;
        const UChar32 first = rest.char32At(0);
        rest.remove(0, U16_LENGTH(first));
        append_utf8(result, static_cast<char32_t>(first));
        result += utf8(rest.toLower(icu::Locale::getRoot()));
        return;
    }
    append_utf8(result, static_cast<char32_t>(simple));
}

}  // namespace

std::size_t character_count(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::size_t> character_offsets(std::string_view text) {
    std::vector<std::size_t> offsets;
    for (std::size_t i = 0; i < text.size(); ++i)
        if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
    offsets.push_back(text.size());
    return offsets;
}

bool is_space(char32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
    return stripped_where(text, left, right, [](std::string_view, char32_t c) { return is_space(c); });
}

std::string_view stripped_of(std::string_view text, std::string_view chars, bool left, bool right) {
    return stripped_where(text, left, right, [&](std::string_view character, char32_t) {
        return chars.find(character) != std::string_view::npos;
    });
}

std::vector<std::string_view> split_at_spaces(std::string_view text, std::size_t limit) {
    std::vector<std::string_view> words;
    for (text = stripped(text, true, false); !text.empty(); text = stripped(text, true, false)) {
        if (words.size() == limit) {
            words.push_back(stripped(text, false, true));
            break;
        }
        std::size_t end = text.size();
        for_characters(text, [&](char32_t c, std::size_t at, std::size_t) {
            if (is_space(c)) end = at;
            return end == text.size();
        });
        words.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    return words;
}

std::vector<std::string_view> split_at_spaces_from_right(std::string_view text, std::size_t limit) {
    std::vector<std::string_view> words;
    for (text = stripped(text, false, true); !text.empty(); text = stripped(text, false, true)) {
        if (words.size() == limit) {
            words.push_back(stripped(text, true, false));
            break;
        }
        std::size_t begin = text.size();
        while (begin > 0) {
            const std::string_view last = last_character(text.substr(0, begin));
            if (is_space(decode_utf8(last).code_point)) break;
            begin -= last.size();
        }
        words.push_back(text.substr(begin));
        text = text.substr(0, begin);
    }
    std::reverse(words.begin(), words.end());
    return words;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
    std::vector<std::string_view> lines;
    std::size_t begin = 0, skip_until = 0;
    for_characters(text, [&](char32_t c, std::size_t at, std::size_t length) {
        if (at < skip_until || !is_line_end(c)) return true;
        std::size_t end = at + length;
        if (c == U'\r' && end < text.size() && text[end] == '\n') ++end;
        lines.push_back(text.substr(begin, (keep_ends ? end : at) - begin));
        begin = skip_until = end;
        return true;
    });
    if (begin < text.size()) lines.push_back(text.substr(begin));
    return lines;
}

std::string upper_case(std::string_view text) {
    if (is_ascii(text)) return ascii_mapped(text, 'a', 'z');
    return utf8(unicode(text).toUpper(icu::Locale::getRoot()));
}

std::string small_case(std::string_view text) {
    if (is_ascii(text)) return ascii_mapped(text, 'A', 'Z');
    return utf8(unicode(text).toLower(icu::Locale::getRoot()));
}

std::string folded_case(std::string_view text) {
    if (is_ascii(text)) return ascii_mapped(text, 'A', 'Z');
    return utf8(unicode(text).foldCase());
}

std::string swapped_case(std::string_view text) {
    std::string result;
    for_characters(text, [&](char32_t c, std::size_t at, std::size_t length) {
        const std::string_view character = text.substr(at, length);
        result += upper(c) ? small_case(character) : lower(c) ? upper_case(character) : character;
        return true;
    });
    return result;
}

std::string title_case(std::string_view text) {
    std::string result;
    bool after_letter = false;
    for_characters(text, [&](char32_t c, std::size_t at, std::size_t length) {
        if (after_letter && c == capital_sigma && ends_word(text.substr(at + length)))
            append_utf8(result, final_sigma);
        else if (after_letter)
            result += small_case(text.substr(at, length));
        else
            append_title(result, c);
        after_letter = cased(c);
        return true;
    });
    return result;
}

std::string capitalized(std::string_view text) {
    if (text.empty()) return {};
    const Utf8Char first = decode_utf8(text);
    std::string result;
    append_title(result, first.code_point);
    return result + small_case(text.substr(first.length));
}

bool is_upper(std::string_view text) {
    return has_case(text, upper, [](char32_t c) { return lower(c) || title(c); });
}

bool is_lower(std::string_view text) {
    return has_case(text, lower, [](char32_t c) { return upper(c) || title(c); });
}

bool is_title(std::string_view text) {
    bool after_letter = false, found = false;
    return for_characters(text,
                          [&](char32_t c, auto, auto) {
                              const bool begins = upper(c) || title(c);
                              if (begins ? after_letter : lower(c) && !after_letter) return false;
                              after_letter = begins || lower(c);
                              found = found || after_letter;
                              return true;
                          }) &&
           found;
}

bool all_spaces(std::string_view text) {
    return all(text, is_space);
}
bool all_letters(std::string_view text) {
    return all(text, letter);
}
bool all_decimals(std::string_view text) {
    return all(text, decimal);
}
bool all_digits(std::string_view text) {
    return all(text, digit);
}
bool all_numeric(std::string_view text) {
    return all(text, numeric);
}
bool all_alphanumeric(std::string_view text) {
    return all(text, [](char32_t c) { return letter(c) || numeric(c); });
}
bool all_printable(std::string_view text) {
    return text.empty() || all(text, printable);
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

bool is_identifier(std::string_view text) {
    return !text.empty() && for_characters(text, [](char32_t c, std::size_t at, auto) {
        const auto point = static_cast<UChar32>(c);
        return c == U'_' || u_hasBinaryProperty(point, at == 0 ? UCHAR_XID_START : UCHAR_XID_CONTINUE);
    });
}

std::string python_quoted(std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string result(1, quote);
    for_characters(text, [&](char32_t c, std::size_t at, std::size_t length) {
        if (c == static_cast<char32_t>(quote) || c == U'\\')
            result.append(1, '\\').append(1, static_cast<char>(c));
        else if (c == U'\n')
            result += "\\n";
        else if (c == U'\r')
            result += "\\r";
        else if (c == U'\t')
            result += "\\t";
        else if (printable(c))
            result += text.substr(at, length);
        else if (c < 0x100)
            result += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c));
        else if (c < 0x10000)
            result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
        else
            result += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c));
        return true;
    });
    return result + quote;
}

}  // namespace drover::jinja
