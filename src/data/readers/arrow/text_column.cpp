#include "data/readers/arrow/text_column.h"

#include <string_view>

namespace drover::arrow_module {
namespace {

template <class Strings>
void give(const arrow::Array& column, std::int64_t begin, std::int64_t count, DroverArrowTextSink sink,
          void* context) {
    const auto& strings = static_cast<const Strings&>(column);
    for (std::int64_t row = begin; row < begin + count; ++row) {
        if (strings.IsNull(row)) {
            sink(context, nullptr, -1);
        } else {
            const std::string_view text = strings.GetView(row);
            sink(context, text.data(), static_cast<std::int64_t>(text.size()));
        }
    }
}

}  // namespace

bool is_text(const arrow::DataType& type) {
    switch (type.id()) {
        case arrow::Type::STRING:
        case arrow::Type::LARGE_STRING:
        case arrow::Type::STRING_VIEW:
        case arrow::Type::NA:
            return true;
        case arrow::Type::DICTIONARY:
            return is_text(*static_cast<const arrow::DictionaryType&>(type).value_type());
        default:
            return false;
    }
}

void give_text(const arrow::Array& column, std::int64_t begin, std::int64_t count, DroverArrowTextSink sink,
               void* context) {
    switch (column.type_id()) {
        case arrow::Type::STRING:
            return give<arrow::StringArray>(column, begin, count, sink, context);
        case arrow::Type::LARGE_STRING:
            return give<arrow::LargeStringArray>(column, begin, count, sink, context);
        case arrow::Type::STRING_VIEW:
            return give<arrow::StringViewArray>(column, begin, count, sink, context);
        case arrow::Type::DICTIONARY: {
            const auto& words = static_cast<const arrow::DictionaryArray&>(column);
            for (std::int64_t row = begin; row < begin + count; ++row) {
                if (words.IsNull(row))
                    sink(context, nullptr, -1);
                else
                    give_text(*words.dictionary(), words.GetValueIndex(row), 1, sink, context);
            }
            return;
        }
        default:
            for (std::int64_t row = 0; row < count; ++row) sink(context, nullptr, -1);
    }
}

}  // namespace drover::arrow_module
