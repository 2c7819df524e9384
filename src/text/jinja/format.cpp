#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/python_text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/characters.h"
#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace drover::jinja {
namespace {

constexpr std::size_t widest = 1'000'000;

/// How a value is laid out: the parts of "%-08.3f" and of "{:>8,.3f}".
struct Layout {
    std::string fill = " ";
    char align = 0;  ///< < > ^ =, 0 for the type's own
    char sign = '-';
    bool alternate = false, thousands = false;
    std::size_t width = 0;
    std::optional<int> precision;
    char type = 0;
};

std::string padded(std::string_view body, const Layout& layout, char align) {
    const std::size_t size = character_count(body);
    if (size >= layout.width) return std::string(body);
    const std::size_t missing = layout.width - size;
    const std::size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    std::string result;
    for (std::size_t i = 0; i < before; ++i) result += layout.fill;
    result += body;
    for (std::size_t i = before; i < missing; ++i) result += layout.fill;
    return result;
}

/// Sign, then zeros or blanks as the layout wants them, then digits.
std::string laid_out_number(bool negative, std::string_view prefix, std::string digits,
                            const Layout& layout) {
    if (layout.thousands) {
        std::size_t whole = 0;
        while (whole < digits.size() && digits[whole] >= '0' && digits[whole] <= '9') ++whole;
        for (std::size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, ",");
    }
    std::string sign = negative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
    sign += prefix;
    const char align = layout.align ? layout.align : '>';
    if (align != '=') return padded(sign + digits, layout, align);
    Layout inner = layout;
    inner.width = layout.width > sign.size() ? layout.width - sign.size() : 0;
    return sign + padded(digits, inner, '>');
}

std::string real_digits(double magnitude, const Layout& layout) {
    if (std::isnan(magnitude)) return "nan";
    if (std::isinf(magnitude)) return "inf";
    const int precision = layout.precision.value_or(6);
    switch (layout.type) {
        case 'f':
        case 'F':
            return fmt::format("{:.{}f}", magnitude, precision);
        case 'e':
            return fmt::format("{:.{}e}", magnitude, precision);
        case 'E':
            return fmt::format("{:.{}E}", magnitude, precision);
        case 'g':
            return fmt::format("{:.{}g}", magnitude, std::max(1, precision));
        case 'G':
            return fmt::format("{:.{}G}", magnitude, std::max(1, precision));
        case '%':
            return fmt::format("{:.{}f}%", magnitude * 100, precision);
        default:
            return layout.precision ? fmt::format("{:.{}g}", magnitude, std::max(1, precision))
                                    : python_float(magnitude);
    }
}

std::string laid_out_real(double value, const Layout& layout) {
    return laid_out_number(std::signbit(value), "", real_digits(std::fabs(value), layout), layout);
}

std::string laid_out_integer(std::int64_t value, const Layout& layout) {
    const std::uint64_t magnitude =
        value < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    std::string digits, prefix;
    switch (layout.type) {
        case 'x':
            digits = fmt::format("{:x}", magnitude), prefix = "0x";
            break;
        case 'X':
            digits = fmt::format("{:X}", magnitude), prefix = "0X";
            break;
        case 'o':
            digits = fmt::format("{:o}", magnitude), prefix = "0o";
            break;
        case 'b':
            digits = fmt::format("{:b}", magnitude), prefix = "0b";
            break;
        default:
            digits = std::to_string(magnitude);
    }
    return laid_out_number(value < 0, layout.alternate ? prefix : "", std::move(digits), layout);
}

/// A run of digits at `at`; fails if it is absurd.
std::size_t read_size(Runtime& runtime, std::string_view format, std::size_t& at) {
    std::size_t size = 0;
    for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
        size = size * 10 + static_cast<std::size_t>(format[at] - '0');
        if (size > widest) runtime.fail("a format has too large a width or precision");
    }
    return size;
}

int read_precision(Runtime& runtime, std::string_view format, std::size_t& at) {
    const std::size_t precision = read_size(runtime, format, at);
    if (precision > 400) runtime.fail("a format has too large a precision");
    return static_cast<int>(precision);
}

std::string cut(std::string_view text, std::optional<int> precision) {
    if (!precision || character_count(text) <= static_cast<std::size_t>(*precision)) return std::string(text);
    return std::string(text.substr(0, character_offsets(text)[static_cast<std::size_t>(*precision)]));
}

/// One conversion of "%": the value as its type letter wants it.
std::string converted(Runtime& runtime, const Value& value, Layout layout) {
    const auto expect_number = [&] {
        expect_defined(runtime, value);
        if (!value.is_number())
            runtime.fail(
                fmt::format("%{} format: a number is required, not {}", layout.type, type_name(value)));
    };
    switch (layout.type) {
        case 's':
            return padded(cut(text_of(runtime, value), layout.precision), layout,
                          layout.align ? layout.align : '>');
        case 'r':
            return padded(cut(representation(runtime, value), layout.precision), layout,
                          layout.align ? layout.align : '>');
        case 'd':
        case 'i':
        case 'u': {
            expect_number();
            if (value.is(Kind::real)) {
                const double whole = std::trunc(value.number());
                if (!(std::fabs(whole) < 9.2e18)) runtime.fail("an integer does not fit into 64 bits");
                return laid_out_integer(static_cast<std::int64_t>(whole), layout);
            }
            return laid_out_integer(value.whole(), layout);
        }
        case 'x':
        case 'X':
        case 'o':
            if (!value.is_whole())
                runtime.fail(
                    fmt::format("%{} format: an integer is required, not {}", layout.type, type_name(value)));
            return laid_out_integer(value.whole(), layout);
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
            expect_number();
            return laid_out_real(value.number(), layout);
        default:
            runtime.fail(fmt::format("unsupported format character '{}'", layout.type));
    }
}

/// The values that "%" takes one by one, or by name.
class PercentValues {
  public:
    PercentValues(Runtime& runtime, const Value& values) : runtime_(runtime), values_(values) {}
    Value next() {
        const bool many = values_.is(Kind::tuple);
        if (taken_ >= (many ? values_.sequence().items.size() : 1))
            runtime_.fail("not enough arguments for format string");
        ++taken_;
        return many ? values_.sequence().items[taken_ - 1] : values_;
    }
    Value named(std::string_view name) {
        if (!values_.is_dict()) runtime_.fail("format requires a mapping");
        const Value* value = values_.dict().find(name);
        if (!value) runtime_.fail(fmt::format("the format has no value for {}", python_quoted(name)));
        return *value;
    }
    void expect_all_used() {
        // What has items by key may stay unused, as a dict.
        if (values_.is_dict() || values_.is(Kind::list) || values_.is(Kind::range) || values_.is_undefined())
            return;
        if (taken_ < (values_.is(Kind::tuple) ? values_.sequence().items.size() : 1))
            runtime_.fail("not all arguments converted during string formatting");
    }

  private:
    Runtime& runtime_;
    const Value& values_;
    std::size_t taken_ = 0;
};

/// The mini-language after the ":" of "{:…}".
Layout read_layout(Runtime& runtime, std::string_view text) {
    Layout layout;
    std::size_t at = 0;
    const auto aligns = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!text.empty()) {
        const std::size_t first = decode_utf8(text).length;
        if (first < text.size() && aligns(text[first])) {
            layout.fill = text.substr(0, first);
            layout.align = text[first];
            at = first + 1;
        } else if (aligns(text[0])) {
            layout.align = text[0];
            at = 1;
        }
    }
    const auto skip = [&](char c) { return at < text.size() && text[at] == c && ++at; };
    if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) layout.sign = text[at++];
    layout.alternate = skip('#');
    if (at < text.size() && text[at] == '0' && !layout.align) {
        layout.fill = "0";
        layout.align = '=';
    }
    layout.width = read_size(runtime, text, at);
    layout.thousands = skip(',');
    if (skip('.')) layout.precision = read_precision(runtime, text, at);
    if (at < text.size()) layout.type = text[at++];
    if (at < text.size()) runtime.fail("Invalid format specifier");
    return layout;
}

/// format(value, layout)
std::string laid_out(Runtime& runtime, const Value& value, std::string_view text) {
    if (text.empty()) return text_of(runtime, value);
    const Layout layout = read_layout(runtime, text);
    constexpr std::string_view real_types = "eEfFgG%";
    const bool real_type = layout.type && real_types.find(layout.type) != std::string_view::npos;
    if (value.is_text() && (layout.type == 0 || layout.type == 's'))
        return padded(cut(value.text(), layout.precision), layout, layout.align ? layout.align : '<');
    if (value.is(Kind::real) ? layout.type == 0 || real_type : value.is_number() && real_type)
        return laid_out_real(value.number(), layout);
    constexpr std::string_view whole_types = "dxXob";
    if (value.is_whole() && (layout.type == 0 || whole_types.find(layout.type) != std::string_view::npos))
        return laid_out_integer(value.whole(), layout);
    runtime.fail(
        fmt::format("unsupported format {} for a value of type '{}'", python_quoted(text), type_name(value)));
}

/// The fields of one "{…}".
struct Field {
    std::string_view name, layout;
    char conversion = 0;
};

Value field_value(Runtime& runtime, std::string_view name, const Arguments& arguments,
                  std::size_t& automatic) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, end);
    Value value;
    if (first.empty() || all_digits(first)) {
        std::size_t index = 0, at = 0;
        index = first.empty() ? automatic++ : read_size(runtime, first, at);
        if (index >= arguments.positional.size())
            runtime.fail("Replacement index out of range for positional args tuple");
        value = arguments.positional[index];
    } else {
        for (const auto& [key, given] : arguments.named)
            if (key == first) value = given;
        if (value.is_missing())
            runtime.fail(fmt::format("the format has no value for {}", python_quoted(first)));
    }
    for (std::size_t at = end; at < name.size();) {
        if (name[at] == '.') {
            const std::size_t stop = std::min(name.find_first_of(".[", at + 1), name.size());
            value = attribute(runtime, value, name.substr(at + 1, stop - at - 1));
            at = stop;
        } else {
            const std::size_t stop = name.find(']', at);
            if (stop == std::string_view::npos) runtime.fail("Missing ']' in format string");
            const std::string_view key = name.substr(at + 1, stop - at - 1);
            std::size_t begin = 0;
            const Value index =
                all_digits(key) ? Value::integer(static_cast<std::int64_t>(read_size(runtime, key, begin)))
                                : runtime.text(std::string(key));
            value = item(runtime, value, index);
            at = stop + 1;
        }
    }
    return value;
}

Field read_field(Runtime& runtime, std::string_view body) {
    Field field;
    const std::size_t colon = body.find(':');
    field.layout = colon == std::string_view::npos ? std::string_view() : body.substr(colon + 1);
    field.name = body.substr(0, colon);
    if (const std::size_t mark = field.name.find('!'); mark != std::string_view::npos) {
        if (field.name.size() != mark + 2) runtime.fail("expected ':' after conversion specifier");
        field.conversion = field.name[mark + 1];
        field.name = field.name.substr(0, mark);
    }
    if (field.layout.find('{') != std::string_view::npos)
        runtime.fail("formats inside formats are not supported");
    return field;
}

}  // namespace

Value percent_formatted(Runtime& runtime, const Value& format, const Value& values) {
    const std::string& text = format.text();
    PercentValues source(runtime, values);
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        if (text[at] != '%') {
            result += text[at++];
            continue;
        }
        ++at;
        Layout layout;
        std::optional<Value> chosen;
        if (at < text.size() && text[at] == '(') {
            const std::size_t end = text.find(')', at);
            if (end == std::string::npos) runtime.fail("incomplete format key");
            chosen = source.named(std::string_view(text).substr(at + 1, end - at - 1));
            at = end + 1;
        }
        for (bool more = true; more && at < text.size();) {
            switch (text[at]) {
                case '-':
                    layout.align = '<';
                    break;
                case '0':
                    if (layout.align != '<') layout.align = '=', layout.fill = "0";
                    break;
                case '+':
                    layout.sign = '+';
                    break;
                case ' ':
                    if (layout.sign != '+') layout.sign = ' ';
                    break;
                case '#':
                    layout.alternate = true;
                    break;
                default:
                    more = false;
            }
            if (more) ++at;
        }
        layout.width = read_size(runtime, text, at);
        if (at < text.size() && text[at] == '.') layout.precision = read_precision(runtime, text, ++at);
        if (at == text.size()) runtime.fail("incomplete format");
        layout.type = text[at++];
        if (layout.type == '%') {
            result += '%';
            continue;
        }
        if (layout.type == 's' || layout.type == 'r') {  // zeros are for numbers
            layout.fill = " ";
            if (layout.align == '=') layout.align = 0;
        }
        result += converted(runtime, chosen ? *chosen : source.next(), layout);
        runtime.step();
        runtime.expect_room(result.size());
    }
    source.expect_all_used();
    return runtime.text(std::move(result), format.as<TextObject>().markup);
}

Value brace_formatted(Runtime& runtime, const Value& format, const Arguments& arguments) {
    const std::string_view text = format.text();
    std::string result;
    std::size_t automatic = 0;
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        const bool twice = at + 1 < text.size() && text[at + 1] == c;
        if ((c == '{' || c == '}') && twice) {
            result += c;
            at += 2;
        } else if (c == '}') {
            runtime.fail("Single '}' encountered in format string");
        } else if (c == '{') {
            const std::size_t end = text.find('}', at);
            if (end == std::string_view::npos) runtime.fail("expected '}' before end of string");
            const Field field = read_field(runtime, text.substr(at + 1, end - at - 1));
            Value value = field_value(runtime, field.name, arguments, automatic);
            if (field.conversion == 'r')
                value = runtime.text(representation(runtime, value));
            else if (field.conversion == 's')
                value = as_text(runtime, value);
            else if (field.conversion)
                runtime.fail("Unknown conversion specifier");
            result += laid_out(runtime, value, field.layout);
            runtime.step();
            runtime.expect_room(result.size());
            at = end + 1;
        } else {
            result += c;
            ++at;
        }
    }
    return runtime.text(std::move(result), format.as<TextObject>().markup);
}

}  // namespace drover::jinja
