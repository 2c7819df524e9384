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
    /// `has_marks`: rows come with labels and documents (Packing::none). They take two bits of memory per
    /// token until the file is finished.
    TokenFileWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const PackingOptions& options, bool has_marks = false);

    /// With a fixed block size every row but the last must be full. Error when an id is not in the
    /// vocabulary.
    void add(std::span<const TokenId> row);
    /// For files with marks. A label is its id, or no_label; `documents` are the lengths of the row's parts.
    void add(std::span<const TokenId> row, std::span<const TokenId> labels,
             std::span<const std::int32_t> documents);
    TokenFileHeader finish();

  private:
    void append(std::string_view bytes);
    void flush();
    void append_ends();
    void append_marks(const std::vector<bool>& marks);

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
    std::vector<bool> labels_, starts_;  // one for each token
};

}  // namespace drover
