#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/content_hash.h"
#include "core/partial_file.h"
#include "data/packing/token_file.h"
#include "data/packing/token_stream.h"

namespace drover {

/// Writes a token file row by row, in constant memory, next to its final path; finish() moves it there. An
/// abandoned writer leaves no file. Ids take 16 bits when the vocabulary has at most 65,536.
class TokenFileWriter {
  public:
    TokenFileWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const PackingOptions& options);

    /// With a fixed block size every row but the last must be full. Error when an id is not in the
    /// vocabulary.
    void add(std::span<const TokenId> row);
    TokenFileHeader finish();

  private:
    void append(std::string_view bytes);
    void flush();
    void append_ends();

    std::filesystem::path path_;
    TokenFileHeader header_;
    PartialFile file_;
    std::uint64_t written_ = TokenFileHeader::bytes;
    std::string buffer_;
    ContentHash checksum_;
    /// Row ends go to a separate file first, because there can be too many for memory.
    std::unique_ptr<PartialFile> ends_;
    std::string ends_buffer_;
    std::uint64_t ends_written_ = 0;
};

}  // namespace drover
