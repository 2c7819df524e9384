#include "data/readers/arrow_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "data/readers/arrow_library.h"
#include "data/rows/columns.h"
#include "text/utf8.h"

namespace drover {
namespace {

class ArrowReader : public FileReader {
  public:
    ArrowReader(const std::filesystem::path& path, const std::string& column)
        : file_(path),
          name_(path.string()),
          column_(column),
          index_(find_column(file_.columns(), column, name_)) {
        file_.seek(index_, 0);
    }

    std::size_t read(RowBatch& batch, std::size_t count) override {
        const std::size_t first = batch.size();
        nulls_.clear();
        Sink sink{*this, batch};
        const std::int64_t given = file_.read_text(
            static_cast<std::int64_t>(count),
            [](void* context, const char* text, std::int64_t size) {
                static_cast<Sink*>(context)->add(text, size);
            },
            &sink);
        // Checked here, because no exception may pass through the module.
        for (std::size_t i = first; i < batch.size(); ++i) {
            const std::string_view row = batch[i];
            const auto place = [&] {
                return fmt::format("{}, row {}", name_, row_ + static_cast<std::int64_t>(i - first));
            };
            if (!nulls_.empty() && nulls_.front() == i) fail_null_text(place(), column_, "is null");
            if (const std::size_t valid = valid_utf8_prefix(row); valid != row.size())
                fail_invalid_utf8(place(), row[valid]);
        }
        row_ += given;
        return static_cast<std::size_t>(given);
    }

    std::int64_t skip(std::int64_t count) override {
        const std::int64_t passed = std::min(count, file_.row_count() - row_);
        row_ += passed;
        file_.seek(index_, row_);
        return passed;
    }

  private:
    struct Sink {
        ArrowReader& reader;
        RowBatch& batch;

        void add(const char* text, std::int64_t size) {
            if (size < 0) reader.nulls_.push_back(batch.size());
            batch.add({text, static_cast<std::size_t>(std::max<std::int64_t>(size, 0))});
        }
    };

    ArrowFile file_;
    std::string name_;
    std::string column_;
    std::size_t index_;
    std::int64_t row_ = 0;
    std::vector<std::size_t> nulls_;
};

class ArrowObjectReader : public FileReader {
  public:
    ArrowObjectReader(const std::filesystem::path& path, const std::vector<std::string>& columns)
        : file_(path), name_(path.string()) {
        for (const std::string& column : columns)
            columns_.push_back(static_cast<std::int32_t>(find_column(file_.columns(), column, name_)));
        file_.seek_columns(columns_, 0);
    }

    std::size_t read(RowBatch& batch, std::size_t count) override {
        const std::size_t first = batch.size();
        const std::int64_t given = file_.read_objects(
            static_cast<std::int64_t>(count),
            [](void* context, const char* text, std::int64_t size) {
                static_cast<RowBatch*>(context)->add({text, static_cast<std::size_t>(size)});
            },
            &batch);
        for (std::size_t i = first; i < batch.size(); ++i, ++row_)
            if (const std::size_t valid = valid_utf8_prefix(batch[i]); valid != batch[i].size())
                fail_invalid_utf8(fmt::format("{}, row {}", name_, row_), batch[i][valid]);
        return static_cast<std::size_t>(given);
    }

    std::int64_t skip(std::int64_t count) override {
        const std::int64_t passed = std::min(count, file_.row_count() - row_);
        row_ += passed;
        file_.seek_columns(columns_, row_);
        return passed;
    }

  private:
    ArrowFile file_;
    std::string name_;
    std::vector<std::int32_t> columns_;
    std::int64_t row_ = 0;
};

}  // namespace

std::unique_ptr<FileReader> make_arrow_object_reader(const std::filesystem::path& path,
                                                     const std::vector<std::string>& columns) {
    return std::make_unique<ArrowObjectReader>(path, columns);
}

std::unique_ptr<FileReader> make_arrow_reader(const std::filesystem::path& path, const std::string& column) {
    return std::make_unique<ArrowReader>(path, column);
}

}  // namespace drover
