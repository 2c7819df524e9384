#include "data/readers/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "data/readers/csv_records.h"
#include "data/rows/columns.h"

namespace drover {
namespace {

std::vector<std::string> header_names(const RowBatch& cells) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < cells.size(); ++i)
        names.push_back(cells[i].empty() ? fmt::format("Unnamed: {}", i) : std::string(cells[i]));
    const std::unordered_set<std::string> given(names.begin(), names.end());
    std::unordered_set<std::string> made;
    // Names are never released, so the search for a free number continues after the last one used.
    std::unordered_map<std::string, int> copies;
    for (std::string& name : names) {
        if (made.insert(name).second) continue;
        int& copy = copies[name];
        std::string numbered;
        do numbered = fmt::format("{}.{}", name, ++copy);
        while (given.contains(numbered) || made.contains(numbered));
        made.insert(numbered);
        name = std::move(numbered);
    }
    return names;
}

/// Goes through the records below the header.
class CsvBody : public FileReader {
  public:
    CsvBody(std::unique_ptr<ByteStream> stream, const std::string& name, char delimiter)
        : records_(std::move(stream), name, delimiter) {
        if (records_.next(cells_)) names_ = header_names(cells_);
    }

    std::int64_t skip(std::int64_t count) override {
        return skip_by_reading(count, [&] { return next(); });
    }

  protected:
    bool next() {
        if (!records_.next(cells_)) return false;
        if (cells_.size() > names_.size())
            throw Error(fmt::format("{}: the row has {} cells, but the header has {}.", records_.place(),
                                    cells_.size(), names_.size()),
                        "Put cells that hold the delimiter in quotes.");
        return true;
    }

    CsvRecords records_;
    RowBatch cells_;
    std::vector<std::string> names_;
};

class CsvReader : public CsvBody {
  public:
    CsvReader(std::unique_ptr<ByteStream> stream, const std::string& name, std::string column, char delimiter)
        : CsvBody(std::move(stream), name, delimiter), column_(std::move(column)) {
        if (!names_.empty()) index_ = find_column(names_, column_, name);
    }

    std::size_t read(RowBatch& batch, std::size_t count) override {
        std::size_t given = 0;
        for (; given < count && next(); ++given) {
            if (index_ >= cells_.size()) fail_null_text(records_.place(), column_, "is absent");
            const std::string_view cell = cells_[index_];
            if (is_missing_value(cell))
                fail_null_text(records_.place(), column_,
                               cell.empty()
                                   ? "is empty"
                                   : fmt::format("is \"{}\", which stands for a missing value", cell));
            batch.add(cell);
        }
        return given;
    }

  private:
    std::string column_;
    std::size_t index_ = 0;
};

class CsvObjectReader : public CsvBody {
  public:
    CsvObjectReader(std::unique_ptr<ByteStream> stream, const std::string& name,
                    std::vector<std::string> columns, char delimiter)
        : CsvBody(std::move(stream), name, delimiter), columns_(std::move(columns)) {
        for (const std::string& column : columns_) indices_.push_back(find_column(names_, column, name));
    }

    std::size_t read(RowBatch& batch, std::size_t count) override {
        std::size_t given = 0;
        std::string object;
        for (; given < count && next(); ++given) {
            object = '{';
            for (std::size_t i = 0; i < columns_.size(); ++i) {
                if (i > 0) object += ',';
                append_json_string(columns_[i], object);
                object += ':';
                const std::string_view cell =
                    indices_[i] < cells_.size() ? cells_[indices_[i]] : std::string_view();
                if (is_missing_value(cell))
                    object += "null";
                else
                    append_json_string(cell, object);
            }
            object += '}';
            batch.add(object);
        }
        return given;
    }

  private:
    std::vector<std::string> columns_;
    std::vector<std::size_t> indices_;
};

}  // namespace

bool is_missing_value(std::string_view cell) {
    constexpr std::array<std::string_view, 19> words{
        "",     "#N/A", "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
        "<NA>", "N/A",  "NA",       "NULL", "NaN",     "None",     "n/a",  "nan",  "null"};
    return cell.size() <= 8 && std::find(words.begin(), words.end(), cell) != words.end();
}

std::vector<std::string> csv_columns(std::unique_ptr<ByteStream> stream, const std::string& name,
                                     char delimiter) {
    CsvRecords records(std::move(stream), name, delimiter);
    RowBatch cells;
    if (!records.next(cells)) return {};
    return header_names(cells);
}

std::unique_ptr<FileReader> make_csv_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                            const std::string& column, char delimiter) {
    return std::make_unique<CsvReader>(std::move(stream), name, column, delimiter);
}

std::unique_ptr<FileReader> make_csv_object_reader(std::unique_ptr<ByteStream> stream, std::string name,
                                                   std::vector<std::string> columns, char delimiter) {
    return std::make_unique<CsvObjectReader>(std::move(stream), name, std::move(columns), delimiter);
}

}  // namespace drover
