#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/datasets/dataset_card.h"

namespace drover {
namespace {

struct Line {
    std::size_t indent;
    std::string text;
    int number;
};

class Parser {
  public:
    Parser(std::string_view text, std::string_view file, int first_line) : file_(file) {
        for (int number = first_line; !text.empty(); ++number) {
            const std::size_t end = std::min(text.find('\n'), text.size());
            add_line(text.substr(0, end), number);
            text.remove_prefix(std::min(end + 1, text.size()));
        }
    }

    Json parse() {
        if (lines_.empty()) return nullptr;
        Json value = block(lines_[0].indent);
        if (at_ < lines_.size()) fail("its indentation fits nothing before it");
        return value;
    }

  private:
    void add_line(std::string_view text, int number) {
        const std::size_t indent = text.find_first_not_of(' ');
        if (indent == std::string_view::npos) return;
        text.remove_prefix(indent);
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
            } else if (c == '"' || c == '\'') {
                quote = c;
            } else if (c == '#' && (i == 0 || text[i - 1] == ' ')) {
                return i;
            }
        }
        return text.size();
    }

    static bool is_item(const std::string& text) { return text == "-" || text.starts_with("- "); }

    Json block(std::size_t indent) {
        if (++depth_ > 100) fail("it nests too deep");
        Json value = is_item(lines_[at_].text) ? items(indent) : mapping(indent);
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
                if (is_item(line.text) || key_end(line.text) != std::string::npos) {
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
            if (colon == std::string::npos) fail("it is neither \"key: value\" nor an item of a list");
            const std::string key = scalar(text.substr(0, colon)).get<std::string>();
            if (map.contains(key)) fail(fmt::format("the key \"{}\" is there twice", key));
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

    Json scalar(std::string_view text) const {
        if (text.starts_with('[')) return flow_list(text);
        if (text.starts_with('"') || text.starts_with('\'')) {
            std::size_t at = 0;
            std::string value = quoted(text, at);
            if (at != text.size()) fail("something follows a closing quote");
            return value;
        }
        if (std::string_view("{|>&*!%@`").find(text.front()) != std::string_view::npos)
            fail(fmt::format("values that begin with {} are not understood", text.front()));
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
        fail("a quote is never closed");
    }

    Json flow_list(std::string_view text) const {
        Json list = Json::array();
        std::size_t at = 1;
        const auto pass_blanks = [&] {
            while (at < text.size() && text[at] == ' ') ++at;
        };
        for (pass_blanks(); at < text.size() && text[at] != ']'; pass_blanks()) {
            if (text[at] == '"' || text[at] == '\'') {
                list.push_back(quoted(text, at));
            } else {
                std::size_t end = std::min(text.find_first_of(",]", at), text.size());
                std::string_view item = text.substr(at, end - at);
                while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
                if (item.empty() || item.front() == '[' || item.front() == '{')
                    fail("lists in brackets may hold only strings");
                list.push_back(std::string(item));
                at = end;
            }
            pass_blanks();
            if (at < text.size() && text[at] == ',') ++at;
        }
        if (at + 1 != text.size()) fail("a list in brackets is not closed at the end of the line");
        return list;
    }

    [[noreturn]] void fail(std::string_view what) const {
        const int number = lines_[std::min(at_, lines_.size() - 1)].number;
        throw Error(fmt::format("{}, line {} cannot be understood: {}.", file_, number, what),
                    "Write the configs as plain YAML, or name the data files on the command line.");
    }

    std::string_view file_;
    std::vector<Line> lines_;
    std::size_t at_ = 0;
    int depth_ = 0;
};

}  // namespace

Json parse_simple_yaml(std::string_view text, std::string_view file, int first_line) {
    return Parser(text, file, first_line).parse();
}

}  // namespace drover
