#include "text/jinja/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/python_text.h"
#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace drover::jinja {
namespace {

void write_string(std::string& out, std::string_view text, bool ascii) {
    out += '"';
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        const Utf8Char character = decode_utf8(text.substr(at));
        const std::size_t size = std::max(1u, character.length);
        if (c == '"' || c == '\\')
            out.append(1, '\\').append(1, c);
        else if (c == '\n')
            out += "\\n";
        else if (c == '\r')
            out += "\\r";
        else if (c == '\t')
            out += "\\t";
        else if (c == '\b')
            out += "\\b";
        else if (c == '\f')
            out += "\\f";
        else if (static_cast<unsigned char>(c) < 0x20 || (ascii && c == 0x7F))
            out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else if (ascii && character.code_point >= 0x10000)
            out +=
                fmt::format("\\u{:04x}\\u{:04x}",
                            0xD800 + ((static_cast<std::uint32_t>(character.code_point) - 0x10000) >> 10),
                            0xDC00 + ((static_cast<std::uint32_t>(character.code_point) - 0x10000) & 0x3FF));
        else if (ascii && character.code_point >= 0x80)
            out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character.code_point));
        else
            out += text.substr(at, size);
        at += size;
    }
    out += '"';
}

std::string number_text(const Value& value) {
    if (value.is(Kind::integer)) return std::to_string(value.whole());
    const double number = value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return python_float(number);
}

class JsonWriter {
  public:
    JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

    std::string take() { return std::move(out_); }

    void write(const Value& value, int depth) {
        runtime_.step();
        const Runtime::Level level(runtime_);
        switch (value.kind()) {
            case Kind::none:
                out_ += "null";
                break;
            case Kind::boolean:
                out_ += value.as_bool() ? "true" : "false";
                break;
            case Kind::integer:
            case Kind::real:
                out_ += number_text(value);
                break;
            case Kind::text:
                runtime_.step(value.text().size() / 16);
                write_string(out_, value.text(), style_.ensure_ascii);
                break;
            case Kind::list:
            case Kind::tuple:
                write_list(value.sequence(), depth);
                break;
            case Kind::dict:
                write_dict(value.dict(), depth);
                break;
            default:
                runtime_.fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
        }
        runtime_.expect_room(out_.size());
    }

  private:
    void new_line(int depth) {
        if (!style_.indent) return;
        out_ += '\n';
        for (int i = 0; i < depth; ++i) out_ += *style_.indent;
    }

    void write_list(const SequenceObject& list, int depth) {
        if (list.items.empty()) {
            out_ += "[]";
            return;
        }
        out_ += '[';
        bool first = true;
        for (const Value& item : list.items) {
            if (!first) out_ += style_.item_separator;
            first = false;
            new_line(depth + 1);
            write(item, depth + 1);
        }
        new_line(depth);
        out_ += ']';
    }

    void write_dict(const DictObject& dict, int depth) {
        if (dict.entries.empty()) {
            out_ += "{}";
            return;
        }
        std::vector<std::pair<Value, Value>> entries = dict.entries;
        if (style_.sort_keys)
            std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
                return ordered(runtime_, a.first, b.first, Order::less);
            });
        out_ += '{';
        bool first = true;
        for (const auto& [key, value] : entries) {
            if (!first) out_ += style_.item_separator;
            first = false;
            new_line(depth + 1);
            write_string(out_, key_text(key), style_.ensure_ascii);
            out_ += style_.key_separator;
            write(value, depth + 1);
        }
        new_line(depth);
        out_ += '}';
    }

    std::string key_text(const Value& key) {
        if (key.is_text()) return key.text();
        if (key.is_none()) return "null";
        if (key.is(Kind::boolean)) return key.as_bool() ? "true" : "false";
        if (key.is_number()) return number_text(key);
        runtime_.fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }

    Runtime& runtime_;
    const JsonStyle& style_;
    std::string out_;
};

}  // namespace

std::string json_text(Runtime& runtime, const Value& value, const JsonStyle& style) {
    JsonWriter writer(runtime, style);
    writer.write(value, 0);
    return writer.take();
}

}  // namespace drover::jinja
