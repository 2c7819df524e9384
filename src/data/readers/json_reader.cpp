#include "data/readers/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "data/readers/json_rows.h"
#include "data/readers/json_scanner.h"
#include "text/utf8.h"

namespace drover {
namespace {

/// Calls value(scanner, key), which must read the value, for every key of an object.
template <class Value>
void for_each_member(JsonScanner& scanner, std::string_view place, Value&& value) {
    std::vector<std::string> keys;
    scanner.expect('{');
    if (!scanner.take('}')) {
        do {
            std::string key;
            scanner.string(key);
            scanner.expect(':');
            value(key);
            keys.push_back(std::move(key));
        } while (scanner.take(','));
        scanner.expect('}');
    }
    scanner.end();
    std::sort(keys.begin(), keys.end());
    if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
        throw Error(fmt::format("{} has the key \"{}\" twice in one row.", place, *twice),
                    "Remove one of them.");
}

void check_utf8(std::string_view row, const JsonRows& rows) {
    if (const std::size_t valid = valid_utf8_prefix(row); valid != row.size())
        fail_invalid_utf8(rows.place(), row[valid]);
}

class JsonReader : public FileReader {
  public:
    JsonReader(std::unique_ptr<ByteStream> stream, std::string name, std::string column,
               const std::string& field)
        : rows_(std::move(stream), std::move(name), field), column_(std::move(column)) {}

    std::size_t read(RowBatch& batch, std::size_t count) override {
        std::string_view row;
        std::size_t given = 0;
        for (; given < count && rows_.next(row); ++given) {
            check_utf8(row, rows_);
            parse(row);
            batch.add(text_);
        }
        return given;
    }

    std::int64_t skip(std::int64_t count) override {
        std::string_view row;
        return skip_by_reading(count, [&] { return rows_.next(row); });
    }

  private:
    void parse(std::string_view row) {
        const std::string place = rows_.place();
        JsonScanner scanner(row, place);
        if (scanner.peek() != '{') {
            take_text(scanner, place);
            scanner.end();
            return;
        }
        bool found = false;
        for_each_member(scanner, place, [&](const std::string& key) {
            if (key != column_) return scanner.skip_value();
            take_text(scanner, place);
            found = true;
        });
        if (!found) fail_null_text(place, column_, "is absent");
    }

    void take_text(JsonScanner& scanner, const std::string& place) {
        if (scanner.peek() == '"') return scanner.string(text_);
        if (scanner.peek() == 'n') {
            scanner.skip_value();
            fail_null_text(place, column_, "is null");
        }
        const char kind = scanner.peek();
        scanner.skip_value();
        throw Error(fmt::format("{}: the value of \"{}\" is {}, not a string.", place, column_,
                                kind == '{'                  ? "an object"
                                : kind == '['                ? "a list"
                                : kind == 't' || kind == 'f' ? "true or false"
                                                             : "a number"),
                    "Give the column that holds the text, or write the values as strings.");
    }

    JsonRows rows_;
    std::string column_;
    std::string text_;
};

class JsonObjectReader : public FileReader {
  public:
    JsonObjectReader(std::unique_ptr<ByteStream> stream, std::string name, const std::string& field)
        : rows_(std::move(stream), std::move(name), field) {}

    std::size_t read(RowBatch& batch, std::size_t count) override {
        std::string_view row;
        std::size_t given = 0;
        for (; given < count && rows_.next(row); ++given) {
            check_utf8(row, rows_);
            const std::string place = rows_.place();
            JsonScanner scanner(row, place);
            scanner.skip_value();
            scanner.end();
            batch.add(row.starts_with('"') ? fmt::format("{{\"text\":{}}}", row) : std::string(row));
        }
        return given;
    }

    std::int64_t skip(std::int64_t count) override {
        std::string_view row;
        return skip_by_reading(count, [&] { return rows_.next(row); });
    }

  private:
    JsonRows rows_;
};

}  // namespace

std::unique_ptr<FileReader> make_json_object_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                                    const std::string& field) {
    return std::make_unique<JsonObjectReader>(std::move(stream), std::move(name), field);
}

std::vector<std::string> json_columns(std::unique_ptr<ByteStream> stream, const std::string& name,
                                      const std::string& field) {
    constexpr std::int64_t looked_at = 10 << 20;
    JsonRows rows(std::move(stream), name, field);
    std::vector<std::string> columns;
    std::unordered_set<std::string> known;
    std::string_view row;
    while (rows.offset() < looked_at && rows.next(row)) {
        check_utf8(row, rows);
        const std::string place = rows.place();
        JsonScanner scanner(row, place);
        if (scanner.peek() != '{') return {"text"};
        for_each_member(scanner, place, [&](const std::string& key) {
            scanner.skip_value();
            if (known.insert(key).second) columns.push_back(key);
        });
    }
    return columns;
}

std::unique_ptr<FileReader> make_json_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                             std::string column, const std::string& field) {
    return std::make_unique<JsonReader>(std::move(stream), std::move(name), std::move(column), field);
}

}  // namespace drover
