#include "train/profile/gzip_text.h"

#include <zlib.h>

#include <algorithm>

#include "core/error.h"

namespace drover {
namespace {

std::string little_endian(std::uint32_t number) {
    std::string bytes;
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift & 0xff);
    return bytes;
}

}  // namespace

GzipPiece compressed(std::string_view text) {
    constexpr int without_header = -15, usual_memory = 8;
    z_stream stream{};
    require(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, without_header, usual_memory,
                         Z_DEFAULT_STRATEGY) == Z_OK,
            "zlib cannot begin");
    GzipPiece piece{.text_bytes = static_cast<std::int64_t>(text.size()),
                    .checksum = static_cast<std::uint32_t>(
                        crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()))};
    // zlib counts with 32 bits.
    constexpr std::size_t step = 1 << 20;
    std::string buffer(step, '\0');
    std::size_t at = 0;
    do {
        const std::size_t count = std::min(step, text.size() - at);
        stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + at));
        stream.avail_in = static_cast<uInt>(count);
        at += count;
        do {
            stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
            stream.avail_out = static_cast<uInt>(buffer.size());
            // Ends at a whole byte, and refers to nothing before the piece.
            deflate(&stream, at == text.size() ? Z_FULL_FLUSH : Z_NO_FLUSH);
            piece.bytes.append(buffer, 0, buffer.size() - stream.avail_out);
        } while (stream.avail_out == 0);
    } while (at < text.size());
    deflateEnd(&stream);
    return piece;
}

std::string GzipText::begin() const {
    constexpr char any_system = 3;
    return {'\x1f', '\x8b', Z_DEFLATED, 0, 0, 0, 0, 0, 0, any_system};
}

const std::string& GzipText::add(const GzipPiece& piece) {
    checksum_ = static_cast<std::uint32_t>(
        crc32_combine(checksum_, piece.checksum, static_cast<z_off_t>(piece.text_bytes)));
    text_bytes_ += static_cast<std::uint64_t>(piece.text_bytes);
    return piece.bytes;
}

std::string GzipText::end() const {
    // The last block, which is empty, the checksum and the length.
    return std::string("\x03\x00", 2) + little_endian(checksum_) +
           little_endian(static_cast<std::uint32_t>(text_bytes_));
}

}  // namespace drover
