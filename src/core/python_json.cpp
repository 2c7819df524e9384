#include "core/python_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/json_text.h"
#include "core/python_text.h"

namespace drover {
namespace {

std::string json_float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return python_float(value);
}

/// A string in JSON's quotes, all of it ASCII.
std::string json_string(const std::string& text) {
    return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string repr_string(const std::string& text) {
    const bool double_quotes = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
    const char quote = double_quotes ? '"' : '\'';
    std::string quoted(1, quote);
    for (const char c : text) {
        if (c == quote || c == '\\') quoted += '\\';
        if (c == '\n')
            quoted += "\\n";
        else if (c == '\t')
            quoted += "\\t";
        else if (c == '\r')
            quoted += "\\r";
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            quoted += c;
    }
    return quoted + quote;
}

/// The differences between the two layouts of json.dumps.
struct JsonLayout {
    int indent;  ///< −1: one line
    bool sorted;
};

void write_json(std::string& out, const Json& value, const JsonLayout& layout, int depth) {
    const auto new_line = [&](int at) {
        if (layout.indent >= 0) out.append("\n").append(static_cast<std::size_t>(at * layout.indent), ' ');
    };
    const char* separator = layout.indent >= 0 ? "," : ", ";
    if (value.is_object() && !value.empty()) {
        std::vector<std::string> keys;
        for (const auto& [key, member] : value.items()) keys.push_back(key);
        if (layout.sorted) std::sort(keys.begin(), keys.end());
        out += '{';
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (i > 0) out += separator;
            new_line(depth + 1);
            out += json_string(keys[i]) + ": ";
            write_json(out, value.at(keys[i]), layout, depth + 1);
        }
        new_line(depth);
        out += '}';
    } else if (value.is_array() && !value.empty()) {
        out += '[';
        for (std::size_t i = 0; i < value.size(); ++i) {
            if (i > 0) out += separator;
            new_line(depth + 1);
            write_json(out, value[i], layout, depth + 1);
        }
        new_line(depth);
        out += ']';
    } else if (value.is_number_float()) {
        out += json_float(value.get<double>());
    } else if (value.is_string()) {
        out += json_string(value.get_ref<const std::string&>());
    } else {
        out += value.dump();
    }
}

/// Literals that JSON lacks, longest first. They travel through the parser as strings that start with a
/// character which JSON texts can only hold escaped.
struct Literal {
    std::string_view text;
    double value;
};
const Literal literals[] = {{"-Infinity", -HUGE_VAL}, {"Infinity", HUGE_VAL}, {"NaN", std::nan("")}};
constexpr std::string_view literal_mark = "\\u0001";

void restore_literals(Json& value) {
    if (value.is_structured()) {
        for (Json& member : value) restore_literals(member);
    } else if (value.is_string()) {
        const std::string& text = value.get_ref<const std::string&>();
        if (!text.starts_with('\x01')) return;
        for (const Literal& literal : literals)
            if (std::string_view(text).substr(1) == literal.text) {
                value = literal.value;
                return;
            }
    }
}

}  // namespace

std::string python_repr(const Json& value) {
    if (value.is_null()) return "None";
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    if (value.is_number_float()) return python_float(value.get<double>());
    if (value.is_string()) return repr_string(value.get_ref<const std::string&>());
    if (value.is_array()) {
        std::vector<std::string> members;
        for (const Json& member : value) members.push_back(python_repr(member));
        return fmt::format("[{}]", fmt::join(members, ", "));
    }
    if (value.is_object()) {
        std::vector<std::string> members;
        for (const auto& [key, member] : value.items())
            members.push_back(repr_string(key) + ": " + python_repr(member));
        return fmt::format("{{{}}}", fmt::join(members, ", "));
    }
    return value.dump();
}

std::string python_json(const Json& value, int indent) {
    std::string text;
    write_json(text, value, {.indent = indent, .sorted = true}, 0);
    return text;
}

Json parse_python_json(std::string_view text, std::string_view where) {
    std::string plain;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string && c == '\\' && i + 1 < text.size()) {
            plain.append(text.substr(i++, 2));
            continue;
        }
        if (c == '"') in_string = !in_string;
        const auto literal = std::find_if(
            std::begin(literals), std::end(literals),
            [&](const Literal& known) { return !in_string && text.substr(i).starts_with(known.text); });
        if (literal == std::end(literals)) {
            plain += c;
        } else {
            plain.append("\"").append(literal_mark).append(literal->text).append("\"");
            i += literal->text.size() - 1;
        }
    }
    Json value = parse_json(plain, where);
    restore_literals(value);
    return value;
}

std::string python_json_line(const Json& value) {
    std::string text;
    write_json(text, value, {.indent = -1, .sorted = false}, 0);
    return text;
}

}  // namespace drover
