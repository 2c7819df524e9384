#include "data/datasets/file_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "core/error.h"
#include "data/packing/token_file.h"
#include "data/readers/arrow_library.h"
#include "data/readers/arrow_reader.h"
#include "data/readers/byte_stream.h"
#include "data/readers/csv_reader.h"
#include "data/readers/file_notes.h"
#include "data/readers/json_reader.h"
#include "data/readers/text_reader.h"
#include "data/readers/wikicorpus.h"
#include "data/rows/columns.h"

namespace drover {
namespace {

[[noreturn]] void refuse_token_file(const std::filesystem::path& path) {
    if (is_token_file(path))
        throw Error(fmt::format("{} is a token file, and text is needed here.", path.string()),
                    "Name the text that it was made from.");
    throw Error(fmt::format("{} has the name of a token file, but does not begin as one.", path.string()),
                "Make it again with `drover tokenize`, or name it as what it is.");
}

}  // namespace

std::vector<std::string> file_columns(const std::filesystem::path& path, RowFormat format,
                                      const ReadOptions& options) {
    const std::string name = path.string();
    switch (format) {
        case RowFormat::text:
            return {"text"};
        case RowFormat::json:
            return json_columns(open_byte_stream(path), name, options.json_field);
        case RowFormat::csv:
            return csv_columns(open_byte_stream(path), name, options.csv_delimiter);
        case RowFormat::tsv:
            return csv_columns(open_byte_stream(path), name, '\t');
        case RowFormat::parquet:
        case RowFormat::arrow:
            return ArrowFile(path).columns();
        case RowFormat::tokens:
            refuse_token_file(path);
        case RowFormat::wikicorpus:
            return wikicorpus_columns();
    }
    bug("an unknown row format");
}

namespace {

/// open_file_rows for options.row_columns.
std::unique_ptr<FileReader> open_objects(const std::filesystem::path& path, RowFormat format,
                                         const ReadOptions& options) {
    const std::string name = path.string();
    std::vector<std::string> columns;
    for (const std::string& column : file_columns(path, format, options))
        if (std::find(options.row_columns.begin(), options.row_columns.end(), column) !=
            options.row_columns.end())
            columns.push_back(column);
    const auto csv = [&](char delimiter) {
        return make_csv_object_reader(open_byte_stream(path), name, columns, delimiter);
    };
    switch (format) {
        case RowFormat::text:
            return make_object_reader(make_text_reader(open_byte_stream(path), name, options.keep_linebreaks),
                                      "text");
        case RowFormat::json:
            return make_json_object_reader(open_byte_stream(path), name, options.json_field);
        case RowFormat::csv:
            return csv(options.csv_delimiter);
        case RowFormat::tsv:
            return csv('\t');
        case RowFormat::parquet:
        case RowFormat::arrow:
            return make_arrow_object_reader(path, columns);
        case RowFormat::tokens:
            refuse_token_file(path);
        case RowFormat::wikicorpus:
            return make_object_reader(make_wikicorpus_reader(open_byte_stream(path), name, "text"), "text");
    }
    bug("an unknown row format");
}

}  // namespace

std::unique_ptr<FileReader> open_file_rows(const std::filesystem::path& path, RowFormat format,
                                           const std::string& column, const ReadOptions& options) {
    if (!options.row_columns.empty()) return open_objects(path, format, options);
    const std::string name = path.string();
    switch (format) {
        case RowFormat::text:
            return make_text_reader(open_byte_stream(path), name, options.keep_linebreaks);
        case RowFormat::json:
            return make_json_reader(open_byte_stream(path), name, column, options.json_field);
        case RowFormat::csv:
            return make_csv_reader(open_byte_stream(path), name, column, options.csv_delimiter);
        case RowFormat::tsv:
            return make_csv_reader(open_byte_stream(path), name, column, '\t');
        case RowFormat::parquet:
        case RowFormat::arrow:
            return make_arrow_reader(path, column);
        case RowFormat::tokens:
            refuse_token_file(path);
        case RowFormat::wikicorpus:
            return make_wikicorpus_reader(open_byte_stream(path), name, column);
    }
    bug("an unknown row format");
}

/// Goes through the files; batches may span files.
class FileRowSource : public RowSource {
  public:
    FileRowSource(const FileRows& rows, std::size_t file, std::unique_ptr<FileReader> reader)
        : rows_(rows), file_(file), reader_(std::move(reader)) {}

    void next(RowBatch& batch, std::size_t max_rows) override {
        batch.clear();
        while (reader_ != nullptr) {
            reader_->read(batch, max_rows - batch.size());
            if (batch.size() == max_rows) return;
            ++file_;
            reader_ = file_ < rows_.files_.size() ? rows_.open_file(file_) : nullptr;
        }
    }

  private:
    const FileRows& rows_;
    std::size_t file_;
    std::unique_ptr<FileReader> reader_;
};

FileRows::FileRows(std::vector<std::filesystem::path> files, ReadOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
    require(!files_.empty(), "a split without files");
    std::size_t empty = 0;
    for (const auto& file : files_) {
        formats_.push_back(options_.format ? *options_.format : format_of(file));
        open_byte_stream(file);
        std::error_code unknown;
        const std::uintmax_t size = std::filesystem::file_size(file, unknown);
        sizes_.push_back(unknown ? 0 : size);
        if (size != 0 || unknown) continue;
        // An empty file among others does no harm, unless its format needs a header.
        const bool may_be_empty = formats_.back() == RowFormat::text || formats_.back() == RowFormat::json;
        if (++empty == files_.size() || !may_be_empty)
            throw Error(fmt::format("{} is empty.", file.string()), "Remove it, or put data into it.");
    }
    for (std::size_t i = 0; i < files_.size() && columns_.empty(); ++i)
        columns_ = file_columns(files_[i], formats_[i], options_);
    RowBatch first_row;
    if (!columns_.empty()) {
        if (options_.refuses_conversations && options_.text_column.empty())
            refuse_conversations(columns_, files_.front().string());
        if (options_.row_columns.empty())
            text_column_ = choose_text_column(columns_, options_.text_column, files_.front().string());
        open(0)->next(first_row, 1);
    }
    if (first_row.size() == 0)
        throw Error(fmt::format("{}{} no rows.", files_.front().string(),
                                files_.size() > 1 ? " and the other files of its split hold" : " holds"),
                    "Put data into it, or name other files.");
}

std::unique_ptr<FileReader> FileRows::open_file(std::size_t index) const {
    // A stream reads its files once per epoch. A file that was truncated in between must not pass for a
    // smaller dataset.
    std::error_code unknown;
    if (const std::uintmax_t size = std::filesystem::file_size(files_[index], unknown);
        !unknown && size < sizes_[index])
        fail_shortened(files_[index].string(), size, sizes_[index]);
    return open_file_rows(files_[index], formats_[index], text_column_, options_);
}

std::unique_ptr<RowSource> FileRows::open(std::int64_t first_row) const {
    std::size_t file = 0;
    {
        const std::lock_guard lock(mutex_);
        while (file < counts_.size() && counts_[file] <= first_row) first_row -= counts_[file++];
    }
    for (; file < files_.size(); ++file) {
        auto reader = open_file(file);
        if (first_row > 0) first_row -= reader->skip(first_row);
        if (first_row == 0) return std::make_unique<FileRowSource>(*this, file, std::move(reader));
    }
    return std::make_unique<FileRowSource>(*this, files_.size(), nullptr);
}

std::int64_t FileRows::count_rows(std::size_t index) const {
    const auto count = [&] { return open_file(index)->skip(std::numeric_limits<std::int64_t>::max()); };
    const std::string way = ContentHash()
                                .add(format_name(formats_[index]))
                                .add(text_column_)
                                .add(options_.json_field)
                                .add({&options_.csv_delimiter, 1})
                                .hex();
    const std::string text = FileNotes(options_.notes).remember(files_[index], way + ".rows", [&] {
        return std::to_string(count());
    });
    std::int64_t rows = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), rows);
    const bool sound = failure == std::errc() && end == text.data() + text.size() && rows >= 0;
    return sound ? rows : count();
}

std::int64_t FileRows::row_count() const {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = counts_.size(); i < files_.size(); ++i) counts_.push_back(count_rows(i));
    std::int64_t sum = 0;
    for (const std::int64_t count : counts_) sum += count;
    return sum;
}

ContentHash FileRows::hash_of_reading() const {
    ContentHash hash;
    hash.add("rows of files 1").add(text_column_).add(options_.keep_linebreaks ? "keep" : "drop");
    hash.add(options_.json_field).add({&options_.csv_delimiter, 1});
    for (const std::string& column : options_.row_columns) hash.add("column " + column);
    return hash;
}

std::string FileRows::quick_fingerprint() const {
    ContentHash hash = hash_of_reading();
    for (std::size_t i = 0; i < files_.size(); ++i) {
        std::error_code unknown;
        hash.add(format_name(formats_[i])).add(files_[i].filename().string());
        hash.add(std::to_string(std::filesystem::file_size(files_[i], unknown)));
    }
    return hash.hex();
}

std::string FileRows::fingerprint() const {
    const std::lock_guard lock(mutex_);
    if (fingerprint_.empty()) {
        ContentHash hash = hash_of_reading();
        for (std::size_t i = 0; i < files_.size(); ++i) {
            hash.add(format_name(formats_[i])).add(FileNotes(options_.notes).hash(files_[i]));
        }
        fingerprint_ = hash.hex();
    }
    return fingerprint_;
}

}  // namespace drover
