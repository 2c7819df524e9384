#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "data/readers/arrow/module_files.h"
#include "data/readers/arrow/row_json.h"
#include "data/readers/arrow/text_column.h"

namespace drover::arrow_module {
namespace {

class ParquetFile : public DroverArrowFile {
  public:
    explicit ParquetFile(const std::string& path) {
        parquet::ArrowReaderProperties properties(/*use_threads=*/false);
        constexpr std::int64_t rows_at_once = 4096;
        properties.set_batch_size(rows_at_once);
        properties.set_pre_buffer(false);
        parquet::arrow::FileReaderBuilder builder;
        // Pages are read as they are needed instead of whole column chunks.
        parquet::ReaderProperties file_properties = parquet::default_reader_properties();
        file_properties.enable_buffered_stream();
        check(builder.Open(value(arrow::io::ReadableFile::Open(path)), file_properties));
        builder.properties(properties);
        check(builder.Build(&reader_));
        check(reader_->GetSchema(&schema_));
        for (const auto& field : schema_->fields()) columns_.push_back(field->name());
        row_count_ = reader_->parquet_reader()->metadata()->num_rows();
    }

    void seek(std::int32_t column, std::int64_t row) override {
        const auto& field = schema_->field(column);
        const int leaf = reader_->manifest().schema_fields[static_cast<std::size_t>(column)].column_index;
        if (!is_text(*field->type()) || leaf < 0)
            throw std::runtime_error("column \"" + field->name() + "\" holds " + field->type()->ToString() +
                                     ", not strings");
        start({leaf}, row);
    }

    void seek_columns(const std::vector<std::int32_t>& columns, std::int64_t row) override {
        std::vector<int> leaves;
        for (const std::int32_t column : columns)
            add_leaves(reader_->manifest().schema_fields[static_cast<std::size_t>(column)], leaves);
        start(leaves, row);
    }

    std::int64_t read_objects(std::int64_t count, DroverArrowTextSink sink, void* context) override {
        std::int64_t given = 0;
        std::string object;
        for (; given < count && load(); ++given, ++at_) {
            object = '{';
            for (int i = 0; i < batch_->num_columns(); ++i) {
                if (i > 0) object += ',';
                append_json(batch_->column_name(i), object);
                object += ':';
                append_json(*batch_->column(i), at_, object);
            }
            object += '}';
            sink(context, object.data(), static_cast<std::int64_t>(object.size()));
        }
        return given;
    }

    std::int64_t read_text(std::int64_t count, DroverArrowTextSink sink, void* context) override {
        std::int64_t given = 0;
        while (given < count && load()) {
            const std::int64_t rows = std::min(count - given, batch_->num_rows() - at_);
            give_text(*batch_->column(0), at_, rows, sink, context);
            at_ += rows;
            given += rows;
        }
        return given;
    }

    void read_tokens(std::int64_t, DroverArrowTokens&) override {
        throw std::runtime_error("token blocks are read from Arrow files only");
    }

  private:
    static void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
        if (field.column_index >= 0) leaves.push_back(field.column_index);
        for (const auto& child : field.children) add_leaves(child, leaves);
    }

    /// The next batches begin at `row` and have the columns of these leaves.
    void start(const std::vector<int>& leaves, std::int64_t row) {
        std::vector<int> groups;
        std::int64_t before = 0;
        const auto metadata = reader_->parquet_reader()->metadata();
        for (int group = 0; group < metadata->num_row_groups(); ++group) {
            const std::int64_t rows = metadata->RowGroup(group)->num_rows();
            if (groups.empty() && before + rows <= row)
                before += rows;
            else
                groups.push_back(group);
        }
        rows_ = value(reader_->GetRecordBatchReader(groups, leaves));
        batch_.reset();
        for (std::int64_t left = row - before; left > 0 && load();) {
            const std::int64_t passed = std::min(left, batch_->num_rows() - at_);
            at_ += passed;
            left -= passed;
        }
    }

    /// Loads a batch with unread rows if needed; false at the end.
    bool load() {
        while (batch_ == nullptr || at_ == batch_->num_rows()) {
            check(rows_->ReadNext(&batch_));
            at_ = 0;
            if (batch_ == nullptr) return false;
        }
        return true;
    }

    std::unique_ptr<parquet::arrow::FileReader> reader_;
    std::shared_ptr<arrow::Schema> schema_;
    std::shared_ptr<arrow::RecordBatchReader> rows_;
    std::shared_ptr<arrow::RecordBatch> batch_;
    std::int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<DroverArrowFile> open_parquet(const std::string& path) {
    return std::make_unique<ParquetFile>(path);
}

}  // namespace drover::arrow_module
