#include "args/roff.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/words.h"

namespace drover {
namespace {

/// A character of UTF-8 at the begin of `text`, and its length; a byte that begins none counts as a "?".
std::pair<unsigned, std::size_t> first_character(std::string_view text) {
    const unsigned char lead = static_cast<unsigned char>(text[0]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
    if (length == 0 || length > text.size()) return {'?', 1};
    unsigned code = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
    return {code, length};
}

/// Text as roff takes it within a line. Hyphens stay hyphens, so that flags can be copied.
std::string escaped(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const auto [code, length] = first_character(text);
        if (code == '\\')
            result += "\\e";
        else if (code == '-')
            result += "\\-";
        else if (code == '\'')
            result += "\\(aq";
        else if (code == '"')
            result += "\\(dq";
        else if (code == '`')
            result += "\\(ga";
        else if (code == '^')
            result += "\\(ha";
        else if (code == '~')
            result += "\\(ti";
        else if (code < 0x80)
            result += static_cast<char>(code);
        else
            result += fmt::format("\\[u{:04X}]", code);
        text.remove_prefix(length);
    }
    return result;
}

/// The same as whole lines: none begins with a control character.
std::string escaped_lines(std::string_view text) {
    std::string result;
    for (const std::string& line : split_words(text, '\n'))
        result += (line.starts_with('.') ? "\\&" : "") + escaped(line) + "\n";
    return result;
}

}  // namespace

RoffPage::RoffPage(std::string_view name, std::string_view source, std::string_view summary) {
    std::string title(name);
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    text_ = fmt::format(".TH \"{}\" \"1\" \"\" \"{}\" \"Drover\"\n.SH NAME\n{} \\- {}\n", escaped(title),
                        escaped(source), escaped(name), escaped(summary));
}

void RoffPage::section(std::string_view title) {
    std::string upper(title);
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    text_ += fmt::format(".SH \"{}\"\n", escaped(upper));
}

void RoffPage::subsection(std::string_view title) {
    text_ += fmt::format(".SS \"{}\"\n", escaped(title));
}

void RoffPage::paragraph(std::string_view text) {
    if (!text_.ends_with("\"\n")) text_ += ".PP\n";  // a heading begins a paragraph by itself
    text_ += escaped_lines(text);
}

void RoffPage::lines(std::string_view text) {
    text_ += ".nf\n" + escaped_lines(text) + ".fi\n";
}

void RoffPage::example(std::string_view text) {
    paragraph("Example:");
    text_ += ".RS 4\n";
    lines(text);
    text_ += ".RE\n";
}

void RoffPage::item(std::string_view term, std::string_view value, std::string_view text) {
    text_ += fmt::format(".TP\n\\fB{}\\fR{}{}\n", escaped(term), value.empty() ? "" : " ", escaped(value));
    text_ += text.empty() ? "\\&\n" : escaped_lines(text);
}

}  // namespace drover
