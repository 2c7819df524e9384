#include "data/readers/json_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/readers/json_scanner.h"

namespace drover {
namespace {

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace

JsonRows::JsonRows(std::unique_ptr<ByteStream> stream, std::string name, const std::string& field)
    : window_(std::move(stream)), name_(std::move(name)), in_object_(!field.empty()) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    while (window_.bytes().size() < byte_order_mark.size() && window_.grow()) {
    }
    if (window_.bytes().starts_with(byte_order_mark)) drop(byte_order_mark.size());
    if (in_object_) find_list(field);
    if (peek() == '[') {
        is_list_ = true;
        drop(1);
    } else if (in_object_) {
        fail(fmt::format("the value of \"{}\" is not a list", field));
    }
}

std::string JsonRows::place() const {
    return fmt::format("{}, line {}", name_, row_line_);
}

bool JsonRows::next(std::string_view& row) {
    drop(std::exchange(given_, 0));
    if (list_ended_) return false;
    char start = peek();
    if (is_list_) {
        if (!first_ && start == ',') {
            drop(1);
            start = peek();
            if (start == ']') fail("a member is missing after a comma of the list");
        } else if (!first_ && start != ']' && start != '\0') {
            fail("a comma is missing between two members of the list");
        }
        if (start == '\0') fail("the file ends before its list does");
        if (start == ']') {
            drop(1);
            list_ended_ = true;
            if (!in_object_ && peek() != '\0') fail("something follows the end of the list");
            return false;
        }
    } else {
        if (start == '\0') return false;
        if (start != '{') fail("a row is not a JSON object, which begins with {");
    }
    first_ = false;
    row_line_ = line_;
    given_ = value_size();
    row = window_.bytes().substr(0, given_);
    return true;
}

void JsonRows::find_list(const std::string& field) {
    if (peek() != '{') fail(fmt::format("there is no object with a key \"{}\"", field));
    drop(1);
    for (;;) {
        if (peek() != '"') fail(fmt::format("there is no key \"{}\"", field));
        const std::size_t size = value_size();
        std::string key;
        JsonScanner(window_.bytes().substr(0, size), place()).string(key);
        drop(size);
        if (peek() != ':') fail("a colon is missing after a key");
        drop(1);
        peek();
        if (key == field) return;
        drop(value_size());
        if (peek() == ',') drop(1);
    }
}

char JsonRows::peek() {
    for (;;) {
        const std::string_view bytes = window_.bytes();
        const auto found = std::find_if_not(bytes.begin(), bytes.end(), is_space);
        drop(static_cast<std::size_t>(found - bytes.begin()));
        if (!window_.bytes().empty()) return window_.bytes().front() == '\0' ? '?' : window_.bytes().front();
        if (!window_.grow()) return '\0';
    }
}

bool JsonRows::has(std::size_t at) {
    while (at >= window_.bytes().size())
        if (!window_.grow()) return false;
    return true;
}

char JsonRows::byte(std::size_t at) {
    if (!has(at)) {
        row_line_ = line_;
        fail("the file ends inside the value that begins here");
    }
    return window_.bytes()[at];
}

std::size_t JsonRows::value_size() {
    const auto string_end = [&](std::size_t at) {  // `at` is after the opening quote
        for (;; ++at) {
            const std::string_view bytes = window_.bytes();
            while (at < bytes.size() && bytes[at] != '"' && bytes[at] != '\\' &&
                   static_cast<unsigned char>(bytes[at]) >= 0x20)
                ++at;
            const char c = byte(at);
            if (c == '"') return at + 1;
            if (c == '\\') ++at;
            // Without this check an unclosed quote would read the rest of the file into memory.
            if (static_cast<unsigned char>(c) < 0x20) {
                row_line_ = line_;
                fail("a string holds a raw control character, such as a line break, or is never closed");
            }
        }
    };
    const char start = byte(0);
    if (start == '"') return string_end(1);
    if (start != '{' && start != '[') {
        std::size_t size = 1;
        while (has(size) && !is_space(byte(size)) &&
               std::string_view(",]}[{\":").find(byte(size)) == std::string_view::npos)
            ++size;
        return size;
    }
    std::size_t depth = 0, at = 0;
    char before = ':';  // the last character that was not white space
    do {
        const char c = byte(at);
        if (is_space(c)) {
            ++at;
            continue;
        }
        if ((c == '{' || c == '[' || c == '"') &&
            std::string_view("{[,:").find(before) == std::string_view::npos) {
            row_line_ = line_ + std::count(window_.bytes().begin(),
                                           window_.bytes().begin() + static_cast<std::ptrdiff_t>(at), '\n');
            fail(fmt::format("a comma or a closing bracket is missing before {}", c));
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        before = c;
        at = c == '"' ? string_end(at + 1) : at + 1;
    } while (depth > 0);
    return at;
}

void JsonRows::drop(std::size_t count) {
    const std::string_view dropped = window_.bytes().substr(0, count);
    line_ += std::count(dropped.begin(), dropped.end(), '\n');
    offset_ += static_cast<std::int64_t>(count);
    window_.drop(count);
    if (given_ == 0) row_line_ = line_;
}

void JsonRows::fail(std::string_view what) const {
    throw Error(fmt::format("{} is not valid JSON: {}.", place(), what),
                "Mend the file; it must be JSON lines, or one list of objects or strings.");
}

}  // namespace drover
