#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace drover::jinja {

enum class TokenKind : std::uint8_t {
    data,            ///< text outside of tags
    variable_begin,  ///< {{
    variable_end,    ///< }}
    block_begin,     ///< {%
    block_end,       ///< %}
    name,
    string,
    integer,
    real,
    sign,  ///< an operator, bracket or comma: its text
    end,
};

struct Token {
    TokenKind kind;
    int line;
    std::string text;  ///< of data, names, strings (without their escapes) and signs
    std::int64_t whole = 0;
    double real = 0;

    bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
    bool is_sign(std::string_view sign) const { return kind == TokenKind::sign && text == sign; }
};

/// Cuts a template into tokens, with white space removed as trim_blocks and lstrip_blocks and the marks "-"
/// and "+" want it. Comments are left out, raw blocks become data. Error, with `name` and the line, at what
/// is no token. The last one is an `end`.
std::vector<Token> tokenize(std::string_view source, std::string_view name);

/// Throws an Error: the template is not Jinja as we know it.
[[noreturn]] void syntax_error(std::string_view name, int line, std::string_view what);

}  // namespace drover::jinja
