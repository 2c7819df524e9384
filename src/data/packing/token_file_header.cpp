#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "core/content_hash.h"
#include "core/error.h"
#include "data/packing/token_file.h"

namespace drover {
namespace {

constexpr std::string_view magic = "DRVTOKEN";
constexpr std::uint32_t plain_version = 1, marked_version = 2;
constexpr std::size_t fingerprint_characters = 32;
constexpr std::size_t checksum_begin = TokenFileHeader::bytes - 16;

class FieldReader {
  public:
    explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

    std::string_view text(std::size_t count) {
        const std::string_view part = bytes_.substr(at_, count);
        at_ += count;
        return part;
    }
    template <class T>
    T number() {
        T value;
        std::memcpy(&value, text(sizeof value).data(), sizeof value);
        return value;
    }

  private:
    std::string_view bytes_;
    std::size_t at_ = 0;
};

std::string_view view(const std::array<unsigned char, 16>& hash) {
    return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

[[noreturn]] void refuse(std::string_view name, std::string_view what) {
    throw Error(fmt::format("{} is not a sound token file: {}.", name, what),
                "Make it again with `drover tokenize`.");
}

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

void check_counts(const TokenFileHeader& header, std::string_view name) {
    // Far above any file, and low enough that no sum or product below overflows.
    constexpr std::uint64_t largest_count = std::uint64_t{1} << 56;
    if (header.token_bytes != 2 && header.token_bytes != 4)
        refuse(name, fmt::format("its tokens have {} bytes", header.token_bytes));
    if (header.tokens > largest_count || header.rows > largest_count || header.block_size > largest_count)
        refuse(name, "a count in its header is impossibly large");
    if (header.vocabulary == 0 || header.vocabulary > std::numeric_limits<TokenId>::max())
        refuse(name, fmt::format("its vocabulary has {} ids", header.vocabulary));
    if (header.largest_id >= header.vocabulary)
        refuse(name, fmt::format("it holds token id {}, but its vocabulary has {} ids", header.largest_id,
                                 header.vocabulary));
    if (header.token_bytes == 2 && header.largest_id > std::numeric_limits<std::uint16_t>::max())
        refuse(name, fmt::format("its largest id is {}, which 16 bits do not hold", header.largest_id));
    if ((header.packing == Packing::none) != (header.block_size == 0))
        refuse(name, fmt::format("packing is {} and the block size {}", packing_name(header.packing),
                                 header.block_size));
    if (header.has_marks && header.packing != Packing::none)
        refuse(name, fmt::format("it has labels, but its packing is {}", packing_name(header.packing)));
    if (header.block_size == 0) {
        if (header.rows == 0 && header.tokens > 0)
            refuse(name, fmt::format("{} tokens are in no row", header.tokens));
        return;
    }
    const std::uint64_t rows = (header.tokens + header.block_size - 1) / header.block_size;
    if (header.rows != rows || (header.packing == Packing::hf && header.tokens % header.block_size != 0))
        refuse(name, fmt::format("{} tokens do not make {} blocks of {}", header.tokens, header.rows,
                                 header.block_size));
}

}  // namespace

std::uint64_t TokenFileHeader::ends_begin() const {
    return bytes + rounded_up(tokens * token_bytes, 8);
}

std::uint64_t TokenFileHeader::labels_begin() const {
    return ends_begin() + (block_size == 0 ? 8 * rows : 0);
}

std::uint64_t TokenFileHeader::starts_begin() const {
    return labels_begin() + (has_marks ? rounded_up(tokens, 64) / 8 : 0);
}

std::uint64_t TokenFileHeader::file_bytes() const {
    return starts_begin() + (has_marks ? rounded_up(tokens, 64) / 8 : 0);
}

bool is_token_file(const std::filesystem::path& path) {
    std::string begin(magic.size(), '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    return file && begin == magic;
}

TokenFileHeader TokenFileHeader::parse(std::string_view file_begin, std::uint64_t file_bytes,
                                       std::string_view name) {
    if (!file_begin.starts_with(magic))
        throw Error(fmt::format("{} is not a token file.", name),
                    "Make one with `drover tokenize --output`.");
    if (file_begin.size() < bytes)
        refuse(name, fmt::format("it is cut off after {} bytes, inside its header", file_begin.size()));
    FieldReader reader(file_begin.substr(magic.size(), bytes - magic.size()));
    const auto version = reader.number<std::uint32_t>();
    if (version != plain_version && version != marked_version)
        throw Error(
            fmt::format("{} is a token file of version {}, and this program reads versions {} and {}.", name,
                        version, plain_version, marked_version),
            "Make it again with `drover tokenize`, or use the program that wrote it.");
    if (file_begin.substr(checksum_begin, 16) !=
        view(ContentHash().add_bytes(file_begin.substr(0, checksum_begin)).digest()))
        refuse(name, "the checksum of its header is wrong");

    TokenFileHeader header;
    header.has_marks = version == marked_version;
    header.token_bytes = reader.number<std::uint32_t>();
    header.block_size = reader.number<std::uint64_t>();
    header.rows = reader.number<std::uint64_t>();
    header.tokens = reader.number<std::uint64_t>();
    header.vocabulary = reader.number<std::uint64_t>();
    header.largest_id = reader.number<std::uint64_t>();
    const auto packing = reader.number<std::uint32_t>();
    if (packing < 1 || packing > 3) refuse(name, fmt::format("its packing is number {}", packing));
    header.packing = Packing{packing};
    header.workers = reader.number<std::uint32_t>();
    header.tokenizer = reader.text(fingerprint_characters);
    for (const char character : header.tokenizer)
        if (character < ' ' || character > '~') refuse(name, "the tokenizer's hash is not text");
    const std::string_view checksum = reader.text(16);
    std::copy(checksum.begin(), checksum.end(), header.data_checksum.begin());
    check_counts(header, name);
    if (file_bytes < header.file_bytes())
        refuse(name, fmt::format("it is cut off after {} of {} bytes", file_bytes, header.file_bytes()));
    if (file_bytes > header.file_bytes())
        refuse(name, fmt::format("it has {} bytes after its end", file_bytes - header.file_bytes()));
    return header;
}

std::string TokenFileHeader::serialize() const {
    require(tokenizer.size() == fingerprint_characters, "a tokenizer's fingerprint has 32 characters");
    std::string text(magic);
    append_bytes(text, has_marks ? marked_version : plain_version);
    append_bytes(text, token_bytes);
    append_bytes(text, block_size);
    append_bytes(text, rows);
    append_bytes(text, tokens);
    append_bytes(text, vocabulary);
    append_bytes(text, largest_id);
    append_bytes(text, static_cast<std::uint32_t>(packing));
    append_bytes(text, workers);
    text += tokenizer;
    text += view(data_checksum);
    text += view(ContentHash().add_bytes(text).digest());
    require(text.size() == bytes, "a token file's header has 128 bytes");
    return text;
}

}  // namespace drover
