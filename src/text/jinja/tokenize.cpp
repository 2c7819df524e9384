#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/error.h"
#include "text/jinja/characters.h"
#include "text/jinja/token.h"
#include "text/utf8.h"

namespace drover::jinja {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// "\n" for every kind of line end; one at the end of the template does not count.
std::string normalized(std::string_view source) {
    std::string text;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            text += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            text += source[i];
        }
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

/// How many bytes of white space `text` begins with.
std::size_t space_at_front(std::string_view text) {
    return text.size() - stripped(text, true, false).size();
}

class Tokenizer {
  public:
    Tokenizer(std::string_view source, std::string_view name) : name_(name), text_(normalized(source)) {}

    std::vector<Token> run() {
        while (at_ < text_.size()) read_data();
        add(TokenKind::end);
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void fail(std::string_view what) const { syntax_error(name_, line_, what); }

    std::string_view rest() const { return std::string_view(text_).substr(at_); }
    bool next_is(std::string_view wanted) const { return rest().starts_with(wanted); }
    Token& add(TokenKind kind, std::string_view text = {}) {
        return tokens_.emplace_back(Token{kind, line_, std::string(text)});
    }
    void advance(std::size_t count) {
        line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                             text_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
        at_ += count;
    }

    /// The text up to the next tag, and the tag.
    void read_data() {
        std::size_t tag = at_;
        while (tag < text_.size()) {
            tag = text_.find('{', tag);
            if (tag == std::string::npos || tag + 1 >= text_.size()) tag = text_.size();
            if (tag == text_.size()) break;
            const char next = text_[tag + 1];
            if (next == '{' || next == '%' || next == '#') break;
            ++tag;
        }
        if (tag == text_.size()) {
            add(TokenKind::data, rest());
            advance(text_.size() - at_);
            return;
        }
        const char kind = text_[tag + 1];
        const char mark = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
        add_data(std::string_view(text_).substr(at_, tag - at_), mark, kind != '{');
        advance(tag - at_);
        if (kind == '%') {
            if (const std::size_t size = raw_tag("raw", false)) {
                read_raw(size);
                return;
            }
        }
        const bool marked = mark == '-' || mark == '+';
        const auto begin = kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin;
        if (kind != '#') add(begin);
        advance(marked ? 3 : 2);
        if (kind == '#')
            read_comment();
        else
            read_tag(kind == '{');
    }

    /// Adds text before a tag without the white space that the tag takes away.
    void add_data(std::string_view data, char mark, bool strips_line) {
        if (mark == '-') {
            data = stripped(data, false, true);
        } else if (mark != '+' && strips_line) {
            const std::size_t line = data.rfind('\n') + 1;  // 0 if there is none
            if ((line > 0 || line_starts_) && stripped(data.substr(line), true, false).empty())
                data = data.substr(0, line);
        }
        if (!data.empty()) add(TokenKind::data, data);
    }

    /// The end of a tag whose "-" or "+" is at `at`: its size with the white space that it takes away; 0 if
    /// there is none.
    std::size_t tag_end(std::size_t at, std::string_view end, bool trims, bool plus) const {
        const std::string_view from = std::string_view(text_).substr(std::min(at, text_.size()));
        if (from.starts_with(end)) {
            const bool newline = trims && from.substr(end.size()).starts_with('\n');
            return end.size() + (newline ? 1 : 0);
        }
        if (from.empty() || !from.substr(1).starts_with(end)) return 0;
        if (plus && from[0] == '+') return end.size() + 1;
        if (from[0] == '-') return end.size() + 1 + space_at_front(from.substr(end.size() + 1));
        return 0;
    }

    void finish_tag(std::size_t size) {
        line_starts_ = size > 0 && text_[at_ + size - 1] == '\n';
        advance(size);
    }

    /// The size of a tag {% raw %} or {% endraw %} at the current place; 0 if there is none.
    std::size_t raw_tag(std::string_view word, bool ends) const {
        std::size_t size = 2;
        if (at_ + size < text_.size() && (text_[at_ + size] == '-' || text_[at_ + size] == '+')) ++size;
        size += space_at_front(std::string_view(text_).substr(at_ + size));
        if (!std::string_view(text_).substr(at_ + size).starts_with(word)) return 0;
        size += word.size();
        size += space_at_front(std::string_view(text_).substr(at_ + size));
        const std::size_t end = tag_end(at_ + size, "%}", ends, ends);
        return end == 0 ? 0 : size + end;
    }

    void read_raw(std::size_t begin_size) {
        finish_tag(begin_size);
        const std::size_t begin = at_;
        const int first_line = line_;
        for (std::size_t tag = text_.find("{%", begin); tag != std::string::npos;
             tag = text_.find("{%", tag + 1)) {
            at_ = tag;
            const std::size_t size = raw_tag("endraw", true);
            if (size == 0) continue;
            at_ = begin;
            add_data(std::string_view(text_).substr(begin, tag - begin), text_[tag + 2], true);
            advance(tag - begin);
            finish_tag(size);
            return;
        }
        line_ = first_line;
        fail("a raw block has no end");
    }

    void read_comment() {
        const std::size_t end = text_.find("#}", at_);
        if (end == std::string::npos) fail("a comment has no end");
        const bool marked = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
        const std::size_t begin = marked ? end - 1 : end;
        const std::size_t size = tag_end(begin, "#}", true, true);
        advance(begin - at_);
        finish_tag(size);
    }

    /// The tokens of a tag up to its end.
    void read_tag(bool variable) {
        std::string open;  // the brackets that must still be closed
        while (at_ < text_.size()) {
            if (open.empty()) {
                const std::size_t size = tag_end(at_, variable ? "}}" : "%}", !variable, !variable);
                if (size > 0) {
                    add(variable ? TokenKind::variable_end : TokenKind::block_end);
                    finish_tag(size);
                    return;
                }
            }
            if (const std::size_t space = space_at_front(rest())) {
                advance(space);
                continue;
            }
            if (read_number() || read_name() || read_string()) continue;
            read_sign(open);
        }
        fail(variable ? "{{ has no }}" : "{% has no %}");
    }

    /// Digits with single underscores between them; 0 if there are none.
    static std::size_t digits_at(std::string_view text, bool (*is)(char)) {
        std::size_t size = 0;
        while (size < text.size() && (is(text[size]) || (size > 0 && text[size] == '_' &&
                                                         size + 1 < text.size() && is(text[size + 1]))))
            ++size;
        return size;
    }

    bool read_number() {
        const std::string_view from = rest();
        if (!is_digit(from[0])) return false;
        const std::size_t whole = digits_at(from, is_digit);
        std::size_t size = whole;
        const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
        if (!after_dot) {
            if (size < from.size() && from[size] == '.')
                if (const std::size_t fraction = digits_at(from.substr(size + 1), is_digit))
                    size += 1 + fraction;
            if (size < from.size() && (from[size] | 0x20) == 'e') {
                std::size_t exponent = size + 1;
                if (exponent < from.size() && (from[exponent] == '+' || from[exponent] == '-')) ++exponent;
                if (const std::size_t digits =
                        exponent < from.size() ? digits_at(from.substr(exponent), is_digit) : 0)
                    size = exponent + digits;
            }
        }
        if (size > whole) {
            add_real(from.substr(0, size));
            return true;
        }
        add_whole(from);
        return true;
    }

    static std::string without_underscores(std::string_view text) {
        std::string digits(text);
        std::erase(digits, '_');
        return digits;
    }

    void add_real(std::string_view text) {
        const std::string digits = without_underscores(text);
        double value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error == std::errc::result_out_of_range) fail("a number is too large or too small");
        add(TokenKind::real, text).real = value;
        advance(text.size());
    }

    void add_whole(std::string_view from) {
        int base = 10;
        std::size_t prefix = 0;
        const char letter = from.size() > 2 && from[0] == '0' ? static_cast<char>(from[1] | 0x20) : ' ';
        const auto binary = [](char c) { return c == '0' || c == '1'; };
        const auto octal = [](char c) { return c >= '0' && c <= '7'; };
        const auto hexadecimal = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
        bool (*is)(char) = is_digit;
        if (letter == 'b' || letter == 'o' || letter == 'x') {
            base = letter == 'b' ? 2 : letter == 'o' ? 8 : 16;
            is = letter == 'b' ? +binary : letter == 'o' ? +octal : +hexadecimal;
            prefix = 2;
            if (!is(from[2])) fail("a number has no digits");
        }
        const std::size_t size = prefix + digits_at(from.substr(prefix), is);
        const std::string digits = without_underscores(from.substr(prefix, size - prefix));
        if (base == 10 && digits.size() > 1 && digits[0] == '0' &&
            digits.find_first_not_of('0') != std::string::npos)
            fail("a number begins with 0");
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
        if (error != std::errc()) fail("an integer does not fit into 64 bits");
        add(TokenKind::integer, from.substr(0, size)).whole = value;
        advance(size);
    }

    bool read_name() {
        std::size_t size = 0;
        const std::string_view from = rest();
        while (size < from.size()) {
            const auto c = static_cast<unsigned char>(from[size]);
            if (c >= 0x80) {
                const unsigned length = decode_utf8(from.substr(size)).length;
                if (!is_identifier("_" + std::string(from.substr(size, length)))) break;
                size += length;
            } else if (std::isalnum(c) || c == '_') {
                ++size;
            } else {
                break;
            }
        }
        if (size == 0) return false;
        if (!is_identifier(from.substr(0, size))) fail("a name has a character that names must not have");
        add(TokenKind::name, from.substr(0, size));
        advance(size);
        return true;
    }

    bool read_string() {
        const char quote = text_[at_];
        if (quote != '"' && quote != '\'') return false;
        std::size_t end = at_ + 1;
        while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
        if (end >= text_.size()) fail("a string has no end");
        const std::string_view body = std::string_view(text_).substr(at_ + 1, end - at_ - 1);
        add(TokenKind::string, unescaped(body));
        advance(end + 1 - at_);
        return true;
    }

    /// Python's escapes. Jinja writes other characters than ASCII as escapes first, which shows only where a
    /// backslash stands before one.
    std::string unescaped(std::string_view body) const {
        std::string text;
        for (std::size_t at = 0; at < body.size();) {
            if (body[at] != '\\') {
                text += body[at++];
                continue;
            }
            ++at;
            const char c = body[at];
            if (static_cast<unsigned char>(c) >= 0x80) {
                const Utf8Char other = decode_utf8(body.substr(at));
                const auto code = static_cast<std::uint32_t>(other.code_point);
                text += code < 0x100     ? fmt::format("\\x{:02x}", code)
                        : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                         : fmt::format("\\U{:08x}", code);
                at += other.length;
                continue;
            }
            constexpr std::string_view letters = "abfnrtv\\'\"", meanings = "\a\b\f\n\r\t\v\\'\"";
            if (const std::size_t known = letters.find(c); known != std::string_view::npos) {
                text += meanings[known];
                ++at;
            } else if (c == '\n') {
                ++at;
            } else if (c >= '0' && c <= '7') {
                std::uint32_t code = 0;
                for (int i = 0; i < 3 && at < body.size() && body[at] >= '0' && body[at] <= '7'; ++i)
                    code = code * 8 + static_cast<std::uint32_t>(body[at++] - '0');
                append_utf8(text, code);
            } else if (c == 'x' || c == 'u' || c == 'U') {
                append_utf8(text, code_of(body, at, c == 'x' ? 2 : c == 'u' ? 4 : 8));
            } else if (c == 'N') {
                fail("\\N{…} in a string is not supported");
            } else {
                text += '\\';
            }
        }
        return text;
    }

    char32_t code_of(std::string_view body, std::size_t& at, std::size_t digits) const {
        std::uint32_t code = 0;
        const std::string_view text = body.substr(at + 1, digits);
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code, 16);
        if (text.size() != digits || error != std::errc() || end != text.data() + digits)
            fail("a string has an escape without its digits");
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
            fail("a string has an escape that is no character");
        at += 1 + digits;
        return code;
    }

    void read_sign(std::string& open) {
        constexpr std::string_view two[] = {"//", "**", "==", "!=", ">=", "<="};
        constexpr std::string_view one = "+-/*%~[](){}><=.:|,;";
        std::string_view sign;
        for (const std::string_view candidate : two)
            if (next_is(candidate)) sign = candidate;
        if (sign.empty() && one.find(text_[at_]) != std::string_view::npos) sign = rest().substr(0, 1);
        if (sign.empty()) {
            const std::size_t size = std::max(1u, decode_utf8(rest()).length);
            fail(fmt::format("unexpected character {}", python_quoted(rest().substr(0, size))));
        }
        const char c = sign.size() == 1 ? sign[0] : ' ';
        if (c == '(' || c == '[' || c == '{') {
            open += c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (open.empty() || open.back() != c) fail(fmt::format("unexpected '{}'", c));
            open.pop_back();
        }
        add(TokenKind::sign, sign);
        advance(sign.size());
    }

    std::string_view name_;
    std::string text_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool line_starts_ = true;  // nothing but tags stands before the current place on its line
    std::vector<Token> tokens_;
};

}  // namespace

void syntax_error(std::string_view name, int line, std::string_view what) {
    throw Error(fmt::format("{}, line {}: {}.", name, line, what),
                "Correct the template; docs/chat-templates.md lists what templates can use.");
}

std::vector<Token> tokenize(std::string_view source, std::string_view name) {
    if (valid_utf8_prefix(source) != source.size()) syntax_error(name, 1, "the template is not UTF-8");
    return Tokenizer(source, name).run();
}

}  // namespace drover::jinja
