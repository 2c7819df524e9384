#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/readers/byte_stream.h"

namespace drover {

/// Goes through the files of a tar archive (ustar, GNU, pax) in order, without unpacking it.
class TarStream {
  public:
    TarStream(std::unique_ptr<ByteStream> stream, std::string name);

    /// Moves to the next regular file; false at the end of the archive.
    bool next_file();
    const std::string& file_name() const { return file_name_; }
    /// Puts the next line of the file, with its "\n", into `line`; false at the end of the file.
    bool next_line(std::string& line);

  private:
    /// Exactly `count` bytes, valid until the next call; fails if there are fewer.
    std::string_view bytes(std::uint64_t count);
    void pass_over(std::uint64_t count);
    [[noreturn]] void fail(std::string_view what) const;

    ByteWindow window_;
    std::string name_;
    std::string file_name_;
    std::uint64_t left_ = 0;     ///< bytes of the current file not yet read
    std::uint64_t padding_ = 0;  ///< after them
};

}  // namespace drover
