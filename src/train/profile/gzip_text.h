#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace drover {

/// A part of a text, compressed alone.
struct GzipPiece {
    std::string bytes;
    std::int64_t text_bytes = 0;
    std::uint32_t checksum = 0;
};

GzipPiece compressed(std::string_view text);

/// A file for gzip that is put together from pieces, which others may have compressed. It has a single
/// member: not all viewers of traces read further ones. The file's bytes are what the functions return, in
/// this order.
class GzipText {
  public:
    std::string begin() const;
    const std::string& add(const GzipPiece& piece);
    std::string end() const;

  private:
    std::uint64_t text_bytes_ = 0;
    std::uint32_t checksum_ = 0;
};

}  // namespace drover
