#pragma once

#include <arrow/status.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/readers/arrow_module.h"

/// A parquet or Arrow file inside the module. Failures are std::runtime_error.
struct DroverArrowFile {
    virtual ~DroverArrowFile() = default;

    std::int64_t row_count() const { return row_count_; }
    const std::vector<std::string>& columns() const { return columns_; }
    virtual void seek(std::int32_t column, std::int64_t row) = 0;
    virtual std::int64_t read_text(std::int64_t count, DroverArrowTextSink sink, void* context) = 0;
    virtual void seek_columns(const std::vector<std::int32_t>& columns, std::int64_t row) = 0;
    virtual std::int64_t read_objects(std::int64_t count, DroverArrowTextSink sink, void* context) = 0;
    virtual void read_tokens(std::int64_t row, DroverArrowTokens& tokens) = 0;

  protected:
    std::int64_t row_count_ = 0;
    std::vector<std::string> columns_;
};

struct DroverArrowWriter {
    virtual ~DroverArrowWriter() = default;
    virtual void add(const std::int32_t* ids, std::int64_t count) = 0;
    virtual void finish() = 0;
};

namespace drover::arrow_module {

std::unique_ptr<DroverArrowFile> open_parquet(const std::string& path);
std::unique_ptr<DroverArrowFile> open_ipc(const std::string& path);
std::unique_ptr<DroverArrowWriter> create_token_writer(const std::string& path, const std::string& metadata);

inline void check(const arrow::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
}

template <class Result>
auto value(Result&& result) {
    check(result.status());
    return std::move(result).ValueUnsafe();
}

}  // namespace drover::arrow_module
