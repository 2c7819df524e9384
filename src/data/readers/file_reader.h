#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/rows/row_source.h"

namespace drover {

/// The rows of one column of one file, in order.
class FileReader {
  public:
    virtual ~FileReader() = default;

    /// Appends the next rows to `batch`, at most `count`, and returns how many; fewer than `count` only at
    /// the end of the file.
    virtual std::size_t read(RowBatch& batch, std::size_t count) = 0;
    /// Skips at most `count` rows and returns how many; fewer only at the end. Does not detect every error in
    /// the skipped rows.
    virtual std::int64_t skip(std::int64_t count) = 0;
};

/// Implements FileReader::skip() with next(), which reads a row and returns false at the end.
template <class Next>
std::int64_t skip_by_reading(std::int64_t count, const Next& next) {
    std::int64_t passed = 0;
    while (passed < count && next()) ++passed;
    return passed;
}

/// Appends a string in quotes, escaped where JSON needs it.
void append_json_string(std::string_view text, std::string& json);

/// The rows of a reader as JSON objects {"<column>": row}.
std::unique_ptr<FileReader> make_object_reader(std::unique_ptr<FileReader> texts, std::string column);

/// Errors shared by several formats. `place` is the file and the line or row.
[[noreturn]] void fail_invalid_utf8(std::string_view place, char byte);
/// `why` completes "the row has no text, because its \"text\" …".
[[noreturn]] void fail_null_text(std::string_view place, std::string_view column, std::string_view why);

}  // namespace drover
