#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/mapped_file.h"
#include "data/packing/packing.h"
#include "data/readers/file_notes.h"
#include "data/rows/training_rows.h"
#include "text/tokenizer.h"

namespace drover {

/// The first 128 bytes of a token file. After them come the ids (`token_bytes` each, little-endian), zeros up
/// to a multiple of 8, and, when block_size is 0, the end of each row as a 64-bit number of tokens. A file
/// with marks has two bits per token after that: whether the id is its own label (otherwise it has none), and
/// whether a document begins there. docs/token-files.md gives the offsets.
struct TokenFileHeader {
    static constexpr std::size_t bytes = 128;

    std::uint32_t token_bytes = 0;  ///< 2 or 4
    std::uint64_t block_size = 0;   ///< tokens per row; 0 when row lengths vary
    std::uint64_t rows = 0;
    std::uint64_t tokens = 0;
    std::uint64_t vocabulary = 0;  ///< len(tokenizer): every id is below it
    std::uint64_t largest_id = 0;  ///< 0 when there are no tokens
    Packing packing = Packing::hf;
    std::uint32_t workers = 1;                      ///< the blocks were made for this many
    bool has_marks = false;                         ///< labels and documents (version 2)
    std::string tokenizer;                          ///< its fingerprint, 32 characters
    std::array<unsigned char, 16> data_checksum{};  ///< ContentHash of all bytes after the header

    /// Checks everything that needs no data: magic, version, header checksum, and that the counts are
    /// consistent with each other and with `file_bytes`. `name` is the file's, for errors.
    static TokenFileHeader parse(std::string_view file_begin, std::uint64_t file_bytes,
                                 std::string_view name);
    /// The 128 bytes, checksum included.
    std::string serialize() const;

    std::uint64_t ends_begin() const;    ///< offset of the row ends in the file
    std::uint64_t labels_begin() const;  ///< offset of the bits that say which ids are labels
    std::uint64_t starts_begin() const;  ///< offset of the bits that say where documents begin
    std::uint64_t file_bytes() const;
};

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

/// Appends the bytes of a number, least significant first, as in token files.
template <class T>
void append_bytes(std::string& bytes, T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The rows of a token file in memory.
class TokenRows final : public TrainingRows {
  public:
    /// Takes constant time. `file` must stay in place; `name` is used in errors.
    TokenRows(std::string_view file, std::string name);

    const TokenFileHeader& header() const { return header_; }
    std::int64_t size() const override { return static_cast<std::int64_t>(header_.rows); }
    /// With a fixed block size, only the last row may be shorter (lossless packing).
    std::int64_t length(std::int64_t row) const override;
    /// Replaces `ids` by the row.
    void read(std::int64_t row, std::vector<TokenId>& ids) const;
    /// The same; every id is its own label, unless the file has marks.
    void read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const override;
    void documents(std::int64_t row, std::vector<std::int32_t>& lengths) const override;

    /// Reads everything: Error when the checksum is wrong, an id is not below the vocabulary, or the row ends
    /// do not ascend.
    void verify() const;
    /// Error when an id is not below `vocab_size` (of the model); takes constant time.
    void check_vocabulary(std::int64_t vocab_size) const;

  private:
    std::pair<std::uint64_t, std::uint64_t> range(std::int64_t row) const;
    std::uint64_t end(std::uint64_t row) const;
    /// A bit of the array that begins at offset `array`.
    bool mark(std::uint64_t array, std::uint64_t token) const;

    std::string_view file_;
    std::string name_;
    TokenFileHeader header_;
};

/// Whether a file starts like a token file.
bool is_token_file(const std::filesystem::path& path);

/// A token file mapped into memory: opening takes constant time; pages are loaded as rows are read.
class TokenFile {
  public:
    explicit TokenFile(const std::filesystem::path& path);

    const TokenRows& rows() const { return rows_; }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    MappedFile file_;
    TokenRows rows_;
};

/// The kind of the note that records that a token file was verified.
inline constexpr const char* verified_note = "verified";

/// Opens a token file and verifies its data, unless `notes` record that this was done.
TokenFile open_verified_token_file(const std::filesystem::path& path, const FileNotes& notes);

}  // namespace drover
