#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "data/readers/arrow/module_files.h"
#include "data/readers/arrow/row_json.h"
#include "data/readers/arrow/text_column.h"

namespace drover::arrow_module {
namespace {

/// Appends the integers of one list as 64-bit numbers.
void append_integers(const arrow::Array& values, std::int64_t begin, std::int64_t count,
                     std::vector<std::int64_t>& into) {
    const auto copy = [&](const auto& numbers) {
        for (std::int64_t i = begin; i < begin + count; ++i)
            into.push_back(static_cast<std::int64_t>(numbers.Value(i)));
    };
    if (values.null_count() != 0) throw std::runtime_error("a list of tokens holds a null");
    switch (values.type_id()) {
        case arrow::Type::INT8:
            return copy(static_cast<const arrow::Int8Array&>(values));
        case arrow::Type::UINT8:
            return copy(static_cast<const arrow::UInt8Array&>(values));
        case arrow::Type::INT16:
            return copy(static_cast<const arrow::Int16Array&>(values));
        case arrow::Type::UINT16:
            return copy(static_cast<const arrow::UInt16Array&>(values));
        case arrow::Type::INT32:
            return copy(static_cast<const arrow::Int32Array&>(values));
        case arrow::Type::UINT32:
            return copy(static_cast<const arrow::UInt32Array&>(values));
        case arrow::Type::INT64:
            return copy(static_cast<const arrow::Int64Array&>(values));
        default:
            throw std::runtime_error("a token column holds lists of " + values.type()->ToString());
    }
}

/// The integers of row `row` of a list column.
void read_list(const arrow::Array& column, std::int64_t row, std::vector<std::int64_t>& into) {
    into.clear();
    if (column.IsNull(row)) throw std::runtime_error("a list of tokens is null");
    const auto read = [&](const auto& lists) {
        append_integers(*lists.values(), lists.value_offset(row), lists.value_length(row), into);
    };
    switch (column.type_id()) {
        case arrow::Type::LIST:
            return read(static_cast<const arrow::ListArray&>(column));
        case arrow::Type::LARGE_LIST:
            return read(static_cast<const arrow::LargeListArray&>(column));
        case arrow::Type::FIXED_SIZE_LIST:
            return read(static_cast<const arrow::FixedSizeListArray&>(column));
        default:
            throw std::runtime_error("a token column holds " + column.type()->ToString() + ", not lists");
    }
}

/// The whole file is mapped into memory, and its batches are views of it.
class IpcFile : public DroverArrowFile {
  public:
    explicit IpcFile(const std::string& path) {
        const auto file = value(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
        auto stream = arrow::ipc::RecordBatchStreamReader::Open(file);
        if (stream.ok()) {
            schema_ = (*stream)->schema();
            std::shared_ptr<arrow::RecordBatch> batch;
            for (;;) {
                check((*stream)->ReadNext(&batch));
                if (batch == nullptr) break;
                add(std::move(batch));
            }
            check_end(*file);
        } else {
            check(file->Seek(0));
            auto random = arrow::ipc::RecordBatchFileReader::Open(file);
            if (!random.ok()) check(stream.status());
            schema_ = (*random)->schema();
            for (int i = 0; i < (*random)->num_record_batches(); ++i)
                add(value((*random)->ReadRecordBatch(i)));
        }
        for (const auto& field : schema_->fields()) columns_.push_back(field->name());
    }

    void seek(std::int32_t column, std::int64_t row) override {
        const auto& field = schema_->field(column);
        if (!is_text(*field->type()))
            throw std::runtime_error("column \"" + field->name() + "\" holds " + field->type()->ToString() +
                                     ", not strings");
        column_ = column;
        row_ = std::min(row, row_count_);
    }

    std::int64_t read_text(std::int64_t count, DroverArrowTextSink sink, void* context) override {
        std::int64_t given = 0;
        while (given < count && row_ < row_count_) {
            const std::size_t batch = batch_of(row_);
            const std::int64_t at = row_ - begins_[batch];
            const std::int64_t rows = std::min(count - given, batches_[batch]->num_rows() - at);
            give_text(*checked(batch, column_), at, rows, sink, context);
            row_ += rows;
            given += rows;
        }
        return given;
    }

    void seek_columns(const std::vector<std::int32_t>& columns, std::int64_t row) override {
        object_columns_ = columns;
        row_ = std::min(row, row_count_);
    }

    std::int64_t read_objects(std::int64_t count, DroverArrowTextSink sink, void* context) override {
        std::int64_t given = 0;
        std::string object;
        for (; given < count && row_ < row_count_; ++given, ++row_) {
            const std::size_t batch = batch_of(row_);
            object = '{';
            for (const std::int32_t column : object_columns_) {
                if (object.size() > 1) object += ',';
                append_json(columns_[static_cast<std::size_t>(column)], object);
                object += ':';
                append_json(*checked(batch, column), row_ - begins_[batch], object);
            }
            object += '}';
            sink(context, object.data(), static_cast<std::int64_t>(object.size()));
        }
        return given;
    }

    void read_tokens(std::int64_t row, DroverArrowTokens& tokens) override {
        if (row < 0 || row >= row_count_) throw std::runtime_error("there is no such row");
        const std::size_t batch = batch_of(row);
        const auto read = [&](const char* name, std::vector<std::int64_t>& into) -> const std::int64_t* {
            const int column = schema_->GetFieldIndex(name);
            if (column < 0) return nullptr;
            read_list(*checked(batch, column), row - begins_[batch], into);
            return into.data();
        };
        tokens.ids = read("input_ids", ids_);
        if (tokens.ids == nullptr) throw std::runtime_error("there is no column \"input_ids\"");
        tokens.labels = read("labels", labels_);
        tokens.mask = read("attention_mask", mask_);
        tokens.count = static_cast<std::int64_t>(ids_.size());
        if ((tokens.labels != nullptr && labels_.size() != ids_.size()) ||
            (tokens.mask != nullptr && mask_.size() != ids_.size()))
            throw std::runtime_error("input_ids, labels and attention_mask are not equally long");
    }

  private:
    /// A stream truncated between two batches would pass for a shorter one, so the end mark is required.
    static void check_end(arrow::io::MemoryMappedFile& file) {
        constexpr std::string_view end_mark("\xff\xff\xff\xff\0\0\0\0", 8);
        const std::int64_t size = value(file.GetSize());
        const auto last = value(file.ReadAt(std::max<std::int64_t>(0, size - 8), 8));
        if (std::string_view(reinterpret_cast<const char*>(last->data()),
                             static_cast<std::size_t>(last->size())) != end_mark)
            throw std::runtime_error("the stream stops before its end");
    }

    void add(std::shared_ptr<arrow::RecordBatch> batch) {
        check(batch->Validate());
        begins_.push_back(row_count_);
        row_count_ += batch->num_rows();
        batches_.push_back(std::move(batch));
    }

    std::size_t batch_of(std::int64_t row) const {
        return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) -
                                        begins_.begin()) -
               1;
    }

    /// A column of a batch, checked so that its offsets stay inside its buffers.
    std::shared_ptr<arrow::Array> checked(std::size_t batch, int column) {
        const auto array = batches_[batch]->column(column);
        if (checks_.empty()) checks_.resize(batches_.size() * columns_.size());
        auto is_checked = checks_.begin() + static_cast<std::ptrdiff_t>(batch * columns_.size()) + column;
        if (!*is_checked) check(array->ValidateFull());
        *is_checked = true;
        return array;
    }

    std::shared_ptr<arrow::Schema> schema_;
    std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;
    std::vector<std::int64_t> begins_;  ///< first row of each batch
    std::vector<bool> checks_;          ///< by batch and column
    int column_ = 0;
    std::vector<std::int32_t> object_columns_;
    std::int64_t row_ = 0;
    std::vector<std::int64_t> ids_, labels_, mask_;
};

}  // namespace

std::unique_ptr<DroverArrowFile> open_ipc(const std::string& path) {
    return std::make_unique<IpcFile>(path);
}

}  // namespace drover::arrow_module
