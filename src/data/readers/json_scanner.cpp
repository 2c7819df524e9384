#include "data/readers/json_scanner.h"

#include <fmt/format.h>

#include "core/error.h"
#include "text/utf8.h"

namespace drover {

void JsonScanner::fail(std::string_view what) const {
    throw Error(fmt::format("{} is not valid JSON: {} (character {} of the row).", place_, what, at_ + 1),
                "Mend the row.");
}

char JsonScanner::peek() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
        ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonScanner::take(char mark) {
    if (peek() != mark || at_ == text_.size()) return false;
    ++at_;
    return true;
}

void JsonScanner::expect(char mark) {
    if (!take(mark)) fail(fmt::format("{} is missing", mark));
}

void JsonScanner::end() {
    peek();
    if (at_ != text_.size()) fail("something follows the value");
}

void JsonScanner::string(std::string& value) {
    value.clear();
    expect('"');
    for (;;) {
        std::size_t plain = at_;
        while (plain < text_.size() && text_[plain] != '"' && text_[plain] != '\\' &&
               static_cast<unsigned char>(text_[plain]) >= 0x20)
            ++plain;
        value.append(text_.substr(at_, plain - at_));
        at_ = plain;
        if (at_ == text_.size()) fail("a string is not closed");
        if (text_[at_] == '"') break;
        if (text_[at_] != '\\') fail("a string holds a raw control character");
        ++at_;
        const char escape = at_ < text_.size() ? text_[at_] : '\0';
        ++at_;
        switch (escape) {
            case '"':
            case '\\':
            case '/':
                value.push_back(escape);
                break;
            case 'b':
                value.push_back('\b');
                break;
            case 'f':
                value.push_back('\f');
                break;
            case 'n':
                value.push_back('\n');
                break;
            case 'r':
                value.push_back('\r');
                break;
            case 't':
                value.push_back('\t');
                break;
            case 'u': {
                char32_t code = hexadecimal();
                if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
                    at_ += 2;
                    const char32_t low = hexadecimal();
                    if (low < 0xDC00 || low >= 0xE000) fail("half of a surrogate pair is missing");
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                }
                if (code >= 0xD800 && code < 0xE000) fail("half of a surrogate pair is missing");
                append_utf8(value, code);
                break;
            }
            default:
                fail("an unknown escape follows \\");
        }
    }
    ++at_;
}

char32_t JsonScanner::hexadecimal() {
    char32_t code = 0;
    for (int digit = 0; digit < 4; ++digit, ++at_) {
        const char c = at_ < text_.size() ? text_[at_] : '\0';
        code <<= 4;
        if (c >= '0' && c <= '9')
            code |= static_cast<char32_t>(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            code |= static_cast<char32_t>((c | 0x20) - 'a' + 10);
        else
            fail("\\u is not followed by four hexadecimal digits");
    }
    return code;
}

void JsonScanner::skip_string() {
    std::string ignored;
    string(ignored);
}

void JsonScanner::skip_number() {
    const auto digits = [&] {
        const std::size_t begin = at_;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
        if (at_ == begin) fail("a value is missing or misspelt");
    };
    if (text_[at_] == '-') ++at_;
    if (text_.substr(at_, 8) == "Infinity") {
        at_ += 8;
        return;
    }
    if (at_ < text_.size() && text_[at_] == '0')
        ++at_;
    else
        digits();
    if (at_ < text_.size() && text_[at_] == '.') {
        ++at_;
        digits();
    }
    if (at_ < text_.size() && (text_[at_] | 0x20) == 'e') {
        ++at_;
        if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
        digits();
    }
}

void JsonScanner::skip_value(int depth) {
    constexpr int deepest = 500;
    if (depth > deepest) fail("lists and objects nest too deep");
    const auto word = [&](std::string_view spelling) {
        if (text_.substr(at_, spelling.size()) != spelling) return false;
        at_ += spelling.size();
        return true;
    };
    switch (peek()) {
        case '"':
            skip_string();
            return;
        case '{':
            ++at_;
            if (take('}')) return;
            do {
                skip_string();
                expect(':');
                skip_value(depth + 1);
            } while (take(','));
            expect('}');
            return;
        case '[':
            ++at_;
            if (take(']')) return;
            do skip_value(depth + 1);
            while (take(','));
            expect(']');
            return;
        case '\0':
            fail("a value is missing or misspelt");
        default:
            if (!word("true") && !word("false") && !word("null") && !word("NaN")) skip_number();
    }
}

}  // namespace drover
