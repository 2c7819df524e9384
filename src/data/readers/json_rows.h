#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/readers/byte_stream.h"

namespace drover {

/// The rows of a JSON file as pieces of its text, one in memory at a time: consecutive objects (with line
/// breaks between or inside them, or none), or the members of one list.
class JsonRows {
  public:
    /// With a `field`, the rows are the members of the list under that key of the one object in the file.
    JsonRows(std::unique_ptr<ByteStream> stream, std::string name, const std::string& field);

    /// The text of the next row, valid until the next call; false at the end.
    bool next(std::string_view& row);
    /// Whether rows are the members of a list (which may be plain strings).
    bool is_list() const { return is_list_; }
    /// Where the last returned row begins: "data.json, line 7".
    std::string place() const;
    /// Bytes of the file up to the end of the last returned row.
    std::int64_t offset() const { return offset_; }

  private:
    void find_list(const std::string& field);
    /// The next byte that is not white space, left in the window; '\0' at the end.
    char peek();
    /// Number of bytes of the value that begins at the window's first byte.
    std::size_t value_size();
    char byte(std::size_t at);
    bool has(std::size_t at);
    void drop(std::size_t count);
    [[noreturn]] void fail(std::string_view what) const;

    ByteWindow window_;
    std::string name_;
    bool in_object_;  ///< the list is under a key
    bool is_list_ = false;
    bool list_ended_ = false;
    bool first_ = true;
    std::size_t given_ = 0;  ///< bytes of the last returned row, still in the window
    std::int64_t line_ = 1;  ///< of the window's first byte
    std::int64_t row_line_ = 1;
    std::int64_t offset_ = 0;
};

}  // namespace drover
