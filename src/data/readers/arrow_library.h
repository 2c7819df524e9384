#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/readers/arrow_module.h"

namespace drover {

/// The loaded module drover_arrow.so (core/program_module.h). Error, naming `file` as the reason it is
/// needed, if it is missing or cannot be loaded.
const DroverArrowModule& arrow_library(std::string_view file);

/// An open parquet or Arrow file.
class ArrowFile {
  public:
    explicit ArrowFile(const std::filesystem::path& path);

    std::int64_t row_count() const { return module_.row_count(file_.get()); }
    const std::vector<std::string>& columns() const { return columns_; }
    /// Sets where text is read next; `column` counts from 0 and must hold strings.
    void seek(std::size_t column, std::int64_t row);
    /// Passes up to `count` rows to `sink`; fewer only at the end.
    std::int64_t read_text(std::int64_t count, DroverArrowTextSink sink, void* context);
    /// Sets where objects are read next, and their columns.
    void seek_columns(const std::vector<std::int32_t>& columns, std::int64_t row);
    /// Passes up to `count` rows, each a JSON object, to `sink`; fewer only at the end.
    std::int64_t read_objects(std::int64_t count, DroverArrowTextSink sink, void* context);
    DroverArrowTokens read_tokens(std::int64_t row);

  private:
    [[noreturn]] void fail(std::string_view message) const;

    std::string path_;
    const DroverArrowModule& module_;
    std::unique_ptr<DroverArrowFile, void (*)(DroverArrowFile*)> file_;
    std::vector<std::string> columns_;
};

}  // namespace drover
