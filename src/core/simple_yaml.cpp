#include "core/simple_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace drover {
namespace {

struct Line {
    std::size_t indent;
    std::string text;
    int number;
};

class Parser {
  public:
    Parser(std::string_view text, std::string_view file, int first_line, YamlScalars scalars)
        : file_(file), scalars_(scalars) {
        if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
        for (int number = first_line; !text.empty(); ++number) {
            const std::size_t end = std::min(text.find('\n'), text.size());
            add_line(text.substr(0, end), number);
            text.remove_prefix(std::min(end + 1, text.size()));
        }
    }

    SimpleYaml parse() {
        if (!lines_.empty() && lines_.front().text == "---") at_ = 1;
        if (lines_.size() > at_ && lines_.back().text == "...") lines_.pop_back();
        SimpleYaml result;
        if (at_ < lines_.size()) result.value = block(lines_[at_].indent);
        if (at_ < lines_.size())
            fail("the indentation fits nothing before it", "Indent the lines of one block alike.");
        result.lines = std::move(key_lines_);
        return result;
    }

  private:
    void add_line(std::string_view text, int number) {
        const std::size_t indent = text.find_first_not_of(' ');
        if (indent == std::string_view::npos) return;
        text.remove_prefix(indent);
        if (text.front() == '\t') {
            lines_.push_back({indent, std::string(text), number});
            at_ = lines_.size() - 1;
            fail("the line is indented with a tab", "Indent with spaces.");
        }
        text = text.substr(0, comment_begin(text));
        while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\t'))
            text.remove_suffix(1);
        if (!text.empty()) lines_.push_back({indent, std::string(text), number});
    }

    static std::size_t comment_begin(std::string_view text) {
        char quote = '\0';
        for (std::size_t i = 0; i < text.size(); ++i) {
            const char c = text[i];
            if (quote != '\0') {
                if (c == '\\' && quote == '"')
                    ++i;
                else if (c == quote)
                    quote = '\0';
            } else if ((c == '"' || c == '\'') &&
                       (i == 0 || std::string_view(" [{,:").find(text[i - 1]) != std::string_view::npos)) {
                quote = c;  // one inside a word is an apostrophe
            } else if (c == '#' && (i == 0 || text[i - 1] == ' ')) {
                return i;
            }
        }
        return text.size();
    }

    static bool is_item(const std::string& text) { return text == "-" || text.starts_with("- "); }

    Json block(std::size_t indent) {
        if (++depth_ > 100) fail("it nests too deeply");
        const std::string& first = lines_[at_].text;
        Json value;
        if (is_item(first)) {
            value = items(indent);
        } else if (first.starts_with('{') || first.starts_with('[')) {
            value = scalar(first);
            ++at_;
        } else {
            value = mapping(indent);
        }
        --depth_;
        return value;
    }

    bool here(std::size_t indent) const { return at_ < lines_.size() && lines_[at_].indent == indent; }

    Json items(std::size_t indent) {
        Json list = Json::array();
        while (here(indent) && is_item(lines_[at_].text)) {
            Line& line = lines_[at_];
            const std::size_t content = line.text.find_first_not_of(' ', 1);
            if (content == std::string::npos) {
                ++at_;
                list.push_back(at_ < lines_.size() && lines_[at_].indent > indent ? block(lines_[at_].indent)
                                                                                  : Json());
            } else {
                // The text after the dash is treated as a separate, more deeply indented line.
                line.text.erase(0, content);
                line.indent = indent + content;
                if (is_item(line.text) || (line.text.front() != '{' && line.text.front() != '[' &&
                                           key_end(line.text) != std::string::npos)) {
                    list.push_back(block(line.indent));
                } else {
                    list.push_back(scalar(line.text));
                    ++at_;
                }
            }
        }
        return list;
    }

    Json mapping(std::size_t indent) {
        Json map = Json::object();
        while (here(indent) && !is_item(lines_[at_].text)) {
            const std::string text = lines_[at_].text;
            const std::size_t colon = key_end(text);
            if (text == "---") fail("a second document begins", "Write one document.");
            if (colon == std::string::npos) fail("the line is neither \"key: value\" nor an item of a list");
            const std::string key = key_of(std::string_view(text).substr(0, colon));
            if (map.contains(key))
                fail(fmt::format("the key \"{}\" is there twice", key), "Remove one of them.");
            if (depth_ == 1) key_lines_[key] = lines_[at_].number;
            const std::size_t value = text.find_first_not_of(' ', colon + 1);
            if (value != std::string::npos) {
                map[key] = scalar(text.substr(value));
                ++at_;
                continue;
            }
            ++at_;
            const bool deeper = at_ < lines_.size() && lines_[at_].indent > indent;
            const bool list_here = here(indent) && is_item(lines_[at_].text);
            map[key] = deeper || list_here ? block(lines_[at_].indent) : Json();
        }
        return map;
    }

    /// Position of the colon after a key; npos if the text is not a "key: value".
    static std::size_t key_end(std::string_view text) {
        std::size_t from = 0;
        if (text.starts_with('"') || text.starts_with('\'')) {
            from = text.find(text[0], 1);
            if (from == std::string_view::npos) return from;
        }
        for (std::size_t colon = text.find(':', from); colon != std::string_view::npos;
             colon = text.find(':', colon + 1))
            if (colon + 1 == text.size() || text[colon + 1] == ' ') return colon;
        return std::string_view::npos;
    }

    /// The text before a colon.
    std::string key_of(std::string_view text) const {
        while (text.ends_with(' ')) text.remove_suffix(1);
        if (text.empty()) fail("there is no key before the colon");
        if (text.front() != '"' && text.front() != '\'') {
            check_begin(text);
            return std::string(text);
        }
        std::size_t at = 0;
        std::string key = quoted(text, at);
        if (at != text.size()) fail("something follows a closing quote");
        return key;
    }

    Json scalar(std::string_view text) {
        std::size_t at = 0;
        Json value;
        if (text.starts_with('[') || text.starts_with('{')) {
            value = flow(text, at);
            if (at != text.size()) fail("something follows a closing bracket");
        } else if (text.starts_with('"') || text.starts_with('\'')) {
            value = quoted(text, at);
            if (at != text.size()) fail("something follows a closing quote");
        } else {
            check_begin(text);
            value = plain(text);
        }
        return value;
    }

    void check_begin(std::string_view text) const {
        if (std::string_view("|>&*!%@`{}[],").find(text.front()) != std::string_view::npos)
            fail(fmt::format("values that begin with {} are not understood", text.front()),
                 remedy_for_begin(text.front()));
    }

    static std::string_view remedy_for_begin(char first) {
        switch (first) {
            case '&':
            case '*':
                return "Anchors are not read: write the value itself in each place.";
            case '|':
            case '>':
                return "Write the text on one line, in quotes.";
            case '!':
                return "Leave out the type.";
            default:
                return "Put the value in quotes.";
        }
    }

    Json plain(std::string_view text) const {
        if (scalars_ == YamlScalars::texts) return std::string(text);
        for (const std::string_view word : {"null", "Null", "NULL", "~"})
            if (text == word) return nullptr;
        for (const std::string_view word : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
            if (text == word) return true;
        for (const std::string_view word : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
            if (text == word) return false;
        const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
        const char* const end = digits.data() + digits.size();
        std::int64_t whole = 0;
        if (const auto [stop, error] = std::from_chars(digits.data(), end, whole);
            error == std::errc() && stop == end)
            return whole;
        double number = 0;
        if (const auto [stop, error] = std::from_chars(digits.data(), end, number);
            error == std::errc() && stop == end && std::isfinite(number))
            return number;
        return std::string(text);
    }

    /// The quoted string at `at`, which is advanced past it.
    std::string quoted(std::string_view text, std::size_t& at) const {
        const char quote = text[at++];
        std::string value;
        for (; at < text.size(); ++at) {
            if (text[at] == quote) {
                if (quote == '"' || at + 1 == text.size() || text[at + 1] != quote) {
                    ++at;
                    return value;
                }
                ++at;
            } else if (text[at] == '\\' && quote == '"' && at + 1 < text.size()) {
                const char escape = text[++at];
                if (std::string_view("\\\"/tn").find(escape) == std::string_view::npos)
                    fail(fmt::format("the escape \\{} is not understood", escape));
                value.push_back(escape == 't' ? '\t' : escape == 'n' ? '\n' : escape);
                continue;
            }
            value.push_back(text[at]);
        }
        fail("a quote is never closed", "Close it on the same line.");
    }

    /// The list or mapping in brackets at `at`, which is advanced past it.
    Json flow(std::string_view text, std::size_t& at) {
        if (++depth_ > 100) fail("it nests too deeply");
        const bool is_list = text[at] == '[';
        const char closing = is_list ? ']' : '}';
        Json value = is_list ? Json::array() : Json::object();
        ++at;
        const auto pass_blanks = [&] {
            while (at < text.size() && text[at] == ' ') ++at;
            if (at == text.size())
                fail("a bracket is not closed at the end of the line", "Close it on the same line.");
        };
        for (pass_blanks(); text[at] != closing; pass_blanks()) {
            if (is_list) {
                value.push_back(flow_value(text, at));
            } else {
                const bool is_quoted = text[at] == '"' || text[at] == '\'';
                const std::string key = is_quoted ? quoted(text, at) : flow_key(text, at);
                pass_blanks();
                if (text[at] != ':') fail("a key in brackets has no colon after it");
                ++at;
                pass_blanks();
                if (value.contains(key))
                    fail(fmt::format("the key \"{}\" is there twice", key), "Remove one of them.");
                value[key] = text[at] == ',' || text[at] == closing ? Json() : flow_value(text, at);
            }
            pass_blanks();
            if (text[at] == ',')
                ++at;
            else if (text[at] != closing)
                fail("a comma is missing in brackets");
        }
        ++at;
        --depth_;
        return value;
    }

    std::string flow_key(std::string_view text, std::size_t& at) const {
        const std::size_t end = std::min(text.find_first_of(":,[]{}", at), text.size());
        const std::string key = end == at ? "" : key_of(text.substr(at, end - at));
        if (key.empty()) fail("there is no key before the colon");
        at = end;
        return key;
    }

    Json flow_value(std::string_view text, std::size_t& at) {
        if (text[at] == '[' || text[at] == '{') return flow(text, at);
        if (text[at] == '"' || text[at] == '\'') return quoted(text, at);
        const std::size_t end = std::min(text.find_first_of(",[]{}", at), text.size());
        std::string_view item = text.substr(at, end - at);
        while (item.ends_with(' ')) item.remove_suffix(1);
        if (item.empty()) fail("a value in brackets is missing");
        check_begin(item);
        at = end;
        return plain(item);
    }

    [[noreturn]] void fail(
        std::string_view what,
        std::string_view remedy = "Write it as plain YAML: name: value on a line each.") const {
        const int number = lines_[std::min(at_, lines_.size() - 1)].number;
        throw Error(fmt::format("{}:{}: {}.", file_, number, what), std::string(remedy));
    }

    std::string_view file_;
    YamlScalars scalars_;
    std::map<std::string, int, std::less<>> key_lines_;
    std::vector<Line> lines_;
    std::size_t at_ = 0;
    int depth_ = 0;
};

}  // namespace

SimpleYaml read_simple_yaml(std::string_view text, std::string_view file, int first_line,
                            YamlScalars scalars) {
    return Parser(text, file, first_line, scalars).parse();
}

Json parse_simple_yaml(std::string_view text, std::string_view file, int first_line) {
    return read_simple_yaml(text, file, first_line).value;
}

}  // namespace drover
