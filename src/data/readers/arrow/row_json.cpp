#include "data/readers/arrow/row_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace drover::arrow_module {
namespace {

void append_number(double number, std::string& json) {
    if (!std::isfinite(number)) {  // JSON has no such numbers
        json += "null";
        return;
    }
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
    json += text;
    if (text.find_first_of(".e") == std::string_view::npos) json += ".0";  // not an integer
}

template <class Numbers>
void append_integer(const arrow::Array& column, std::int64_t row, std::string& json) {
    json += std::to_string(static_cast<const Numbers&>(column).Value(row));
}

template <class Strings>
void append_string(const arrow::Array& column, std::int64_t row, std::string& json) {
    append_json(static_cast<const Strings&>(column).GetView(row), json);
}

template <class Lists>
void append_list(const arrow::Array& column, std::int64_t row, std::string& json) {
    const auto& lists = static_cast<const Lists&>(column);
    json += '[';
    const std::int64_t begin = lists.value_offset(row), count = lists.value_length(row);
    for (std::int64_t i = begin; i < begin + count; ++i) {
        if (i > begin) json += ',';
        append_json(*lists.values(), i, json);
    }
    json += ']';
}

void append_struct(const arrow::StructArray& structs, std::int64_t row, std::string& json) {
    json += '{';
    for (int i = 0; i < structs.num_fields(); ++i) {
        if (i > 0) json += ',';
        append_json(structs.struct_type()->field(i)->name(), json);
        json += ':';
        append_json(*structs.field(i), row, json);
    }
    json += '}';
}

/// An object if the keys are strings.
void append_map(const arrow::MapArray& maps, std::int64_t row, std::string& json) {
    if (maps.keys()->type_id() != arrow::Type::STRING)
        throw std::runtime_error("a map has keys of " + maps.keys()->type()->ToString());
    json += '{';
    const std::int64_t begin = maps.value_offset(row), count = maps.value_length(row);
    for (std::int64_t i = begin; i < begin + count; ++i) {
        if (i > begin) json += ',';
        append_json(*maps.keys(), i, json);
        json += ':';
        append_json(*maps.items(), i, json);
    }
    json += '}';
}

}  // namespace

void append_json(std::string_view text, std::string& json) {
    constexpr std::string_view digits = "0123456789abcdef";
    json += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            json += '\\';
            json += c;
        } else if (byte < 0x20) {
            json += "\\u00";
            json += digits[byte >> 4];
            json += digits[byte & 15];
        } else {
            json += c;
        }
    }
    json += '"';
}

void append_json(const arrow::Array& column, std::int64_t row, std::string& json) {
    using arrow::Type;
    if (column.IsNull(row)) {
        json += "null";
        return;
    }
    switch (column.type_id()) {
        case Type::BOOL:
            json += static_cast<const arrow::BooleanArray&>(column).Value(row) ? "true" : "false";
            return;
        case Type::INT8:
            return append_integer<arrow::Int8Array>(column, row, json);
        case Type::INT16:
            return append_integer<arrow::Int16Array>(column, row, json);
        case Type::INT32:
            return append_integer<arrow::Int32Array>(column, row, json);
        case Type::INT64:
            return append_integer<arrow::Int64Array>(column, row, json);
        case Type::UINT8:
            return append_integer<arrow::UInt8Array>(column, row, json);
        case Type::UINT16:
            return append_integer<arrow::UInt16Array>(column, row, json);
        case Type::UINT32:
            return append_integer<arrow::UInt32Array>(column, row, json);
        case Type::UINT64:
            return append_integer<arrow::UInt64Array>(column, row, json);
        case Type::FLOAT:
            return append_number(static_cast<const arrow::FloatArray&>(column).Value(row), json);
        case Type::DOUBLE:
            return append_number(static_cast<const arrow::DoubleArray&>(column).Value(row), json);
        case Type::STRING:
            return append_string<arrow::StringArray>(column, row, json);
        case Type::LARGE_STRING:
            return append_string<arrow::LargeStringArray>(column, row, json);
        case Type::STRING_VIEW:
            return append_string<arrow::StringViewArray>(column, row, json);
        case Type::LIST:
            return append_list<arrow::ListArray>(column, row, json);
        case Type::LARGE_LIST:
            return append_list<arrow::LargeListArray>(column, row, json);
        case Type::FIXED_SIZE_LIST:
            return append_list<arrow::FixedSizeListArray>(column, row, json);
        case Type::STRUCT:
            return append_struct(static_cast<const arrow::StructArray&>(column), row, json);
        case Type::MAP:
            return append_map(static_cast<const arrow::MapArray&>(column), row, json);
        case Type::DICTIONARY: {
            const auto& words = static_cast<const arrow::DictionaryArray&>(column);
            return append_json(*words.dictionary(), words.GetValueIndex(row), json);
        }
        case Type::EXTENSION:
            return append_json(*static_cast<const arrow::ExtensionArray&>(column).storage(), row, json);
        case Type::BINARY:
        case Type::LARGE_BINARY:
        case Type::BINARY_VIEW:
        case Type::FIXED_SIZE_BINARY:
            throw std::runtime_error("a column holds bytes, which no text can be made of");
        default: {
            const auto scalar = column.GetScalar(row);
            if (!scalar.ok()) throw std::runtime_error(scalar.status().message());
            return append_json((*scalar)->ToString(), json);
        }
    }
}

}  // namespace drover::arrow_module
