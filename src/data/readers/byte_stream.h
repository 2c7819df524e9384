#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Bytes in order, each delivered once.
class ByteStream {
  public:
    virtual ~ByteStream() = default;

    /// Puts up to `size` bytes into `into` and returns how many; 0 means the end. Error when the file cannot
    /// be read, or when compressed data is damaged or truncated.
    virtual std::size_t read(char* into, std::size_t size) = 0;
};

/// The Error for a file that had more bytes when it was first opened.
[[noreturn]] void fail_shortened(const std::string& path, std::uintmax_t bytes, std::uintmax_t before);

/// Opens a file. Content that starts like gzip or Zstandard data is decompressed, whatever the file's name.
/// Error for a name ending in .gz or .zst whose content is something else.
std::unique_ptr<ByteStream> open_byte_stream(const std::filesystem::path& path);

/// A window over the part of a stream that is being examined.
class ByteWindow {
  public:
    explicit ByteWindow(std::unique_ptr<ByteStream> stream);

    /// The bytes read and not yet dropped. Invalidated by grow().
    std::string_view bytes() const { return {buffer_.get() + begin_, end_ - begin_}; }
    void drop(std::size_t count) { begin_ += count; }
    /// Appends more bytes to the window; false at the end of the stream.
    bool grow();
    bool at_end() const { return at_end_; }

  private:
    void resize(std::size_t size);

    std::unique_ptr<ByteStream> stream_;
    /// Grown by realloc, which moves large buffers without copying or touching them.
    std::unique_ptr<char, decltype(&std::free)> buffer_;
    std::size_t size_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    bool filled_ = false;  ///< the last read left no room
    bool at_end_ = false;
};

}  // namespace drover
