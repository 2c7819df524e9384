#include "data/readers/file_reader.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace drover {
namespace {

class ObjectReader : public FileReader {
  public:
    ObjectReader(std::unique_ptr<FileReader> texts, std::string column)
        : texts_(std::move(texts)), column_(std::move(column)) {}

    std::size_t read(RowBatch& batch, std::size_t count) override {
        rows_.clear();
        const std::size_t given = texts_->read(rows_, count);
        for (std::size_t i = 0; i < given; ++i) {
            object_ = '{';
            append_json_string(column_, object_);
            object_ += ':';
            append_json_string(rows_[i], object_);
            object_ += '}';
            batch.add(object_);
        }
        return given;
    }
    std::int64_t skip(std::int64_t count) override { return texts_->skip(count); }

  private:
    std::unique_ptr<FileReader> texts_;
    std::string column_, object_;
    RowBatch rows_;
};

}  // namespace

void append_json_string(std::string_view text, std::string& json) {
    json += '"';
    for (const char c : text) {
        if (c == '"' || c == '\\')
            json.append({'\\', c});
        else if (static_cast<unsigned char>(c) < 0x20)
            json += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else
            json += c;
    }
    json += '"';
}

std::unique_ptr<FileReader> make_object_reader(std::unique_ptr<FileReader> texts, std::string column) {
    return std::make_unique<ObjectReader>(std::move(texts), std::move(column));
}

void fail_invalid_utf8(std::string_view place, char byte) {
    throw Error(fmt::format("{}: byte 0x{:02x} is not valid UTF-8.", place, static_cast<unsigned char>(byte)),
                "Convert the file to UTF-8, for example with iconv.");
}

void fail_null_text(std::string_view place, std::string_view column, std::string_view why) {
    throw Error(fmt::format("{}: the row has no text, because its \"{}\" {}.", place, column, why),
                "Remove such rows, or name another column.");
}

}  // namespace drover
