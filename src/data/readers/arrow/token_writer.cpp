#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>

#include "data/readers/arrow/module_files.h"

namespace drover::arrow_module {
namespace {

class TokenWriter : public DroverArrowWriter {
  public:
    TokenWriter(const std::string& path, const std::string& metadata)
        : schema_(arrow::schema({arrow::field("input_ids", arrow::list(arrow::int32())),
                                 arrow::field("attention_mask", arrow::list(arrow::int8())),
                                 arrow::field("labels", arrow::list(arrow::int64()))},
                                arrow::key_value_metadata({"huggingface"}, {metadata}))),
          file_(value(arrow::io::FileOutputStream::Open(path))),
          stream_(value(arrow::ipc::MakeStreamWriter(file_, schema_))) {}

    void add(const std::int32_t* ids, std::int64_t count) override {
        check(ids_list_.Append());
        check(ids_->AppendValues(ids, count));
        check(mask_list_.Append());
        check(labels_list_.Append());
        check(mask_->Reserve(count));
        check(labels_->Reserve(count));
        for (std::int64_t i = 0; i < count; ++i) {
            mask_->UnsafeAppend(1);
            labels_->UnsafeAppend(ids[i]);
        }
        constexpr std::int64_t rows_per_batch = 1000;  // as the datasets library writes them
        if (++rows_ == rows_per_batch) flush();
    }

    void finish() override {
        flush();
        check(stream_->Close());
        check(file_->Close());
    }

  private:
    void flush() {
        if (rows_ == 0) return;
        const auto batch = arrow::RecordBatch::Make(
            schema_, rows_,
            {value(ids_list_.Finish()), value(mask_list_.Finish()), value(labels_list_.Finish())});
        check(stream_->WriteRecordBatch(*batch));
        rows_ = 0;
    }

    std::shared_ptr<arrow::Schema> schema_;
    std::shared_ptr<arrow::io::FileOutputStream> file_;
    std::shared_ptr<arrow::ipc::RecordBatchWriter> stream_;
    std::shared_ptr<arrow::Int32Builder> ids_ = std::make_shared<arrow::Int32Builder>();
    std::shared_ptr<arrow::Int8Builder> mask_ = std::make_shared<arrow::Int8Builder>();
    std::shared_ptr<arrow::Int64Builder> labels_ = std::make_shared<arrow::Int64Builder>();
    arrow::ListBuilder ids_list_{arrow::default_memory_pool(), ids_};
    arrow::ListBuilder mask_list_{arrow::default_memory_pool(), mask_};
    arrow::ListBuilder labels_list_{arrow::default_memory_pool(), labels_};
    std::int64_t rows_ = 0;
};

}  // namespace

std::unique_ptr<DroverArrowWriter> create_token_writer(const std::string& path, const std::string& metadata) {
    return std::make_unique<TokenWriter>(path, metadata);
}

}  // namespace drover::arrow_module
