#include "data/packing/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/batch.h"
#include "core/content_hash.h"
#include "core/error.h"

namespace drover {
namespace {

constexpr const char* make_again = "Make it again with `drover tokenize`.";

/// Token `i` of the ids that start at `data`.
TokenId token_at(const char* data, std::uint32_t token_bytes, std::uint64_t i) {
    if (token_bytes == 2) {
        std::uint16_t id;
        std::memcpy(&id, data + 2 * i, 2);
        return id;
    }
    TokenId id;
    std::memcpy(&id, data + 4 * i, 4);
    return id;
}

}  // namespace

TokenRows::TokenRows(std::string_view file, std::string name)
    : file_(file),
      name_(std::move(name)),
      header_(TokenFileHeader::parse(file.substr(0, TokenFileHeader::bytes), file.size(), name_)) {}

std::uint64_t TokenRows::end(std::uint64_t row) const {
    std::uint64_t value;
    std::memcpy(&value, file_.data() + header_.ends_begin() + 8 * row, 8);
    return value;
}

std::pair<std::uint64_t, std::uint64_t> TokenRows::range(std::int64_t row) const {
    require(row >= 0 && row < size(), "a row outside the token file is read");
    const auto index = static_cast<std::uint64_t>(row);
    if (header_.block_size != 0)
        return {index * header_.block_size, std::min((index + 1) * header_.block_size, header_.tokens)};
    const std::uint64_t first = index == 0 ? 0 : end(index - 1);
    const std::uint64_t last = end(index);
    if (first > last || last > header_.tokens)
        throw Error(fmt::format("{}: row {} is said to be tokens {} to {} of {}.", name_, row, first, last,
                                header_.tokens),
                    make_again);
    return {first, last};
}

std::int64_t TokenRows::length(std::int64_t row) const {
    const auto [first, last] = range(row);
    return static_cast<std::int64_t>(last - first);
}

void TokenRows::read(std::int64_t row, std::vector<TokenId>& ids) const {
    const auto [first, last] = range(row);
    ids.resize(last - first);
    const char* data = file_.data() + TokenFileHeader::bytes;
    for (std::uint64_t i = first; i < last; ++i) ids[i - first] = token_at(data, header_.token_bytes, i);
}

void TokenRows::read(std::int64_t row, std::vector<TokenId>& ids, std::vector<TokenId>& labels) const {
    read(row, ids);
    labels.clear();
    if (!header_.has_marks) return;
    labels = ids;
    const std::uint64_t first = range(row).first;
    for (std::size_t i = 0; i < labels.size(); ++i)
        if (!mark(header_.labels_begin(), first + i)) labels[i] = no_label;
}

void TokenRows::documents(std::int64_t row, std::vector<std::int32_t>& lengths) const {
    lengths.clear();
    if (!header_.has_marks) return;
    const auto [first, last] = range(row);
    for (std::uint64_t i = first; i < last; ++i) {
        if (i == first || mark(header_.starts_begin(), i)) lengths.push_back(0);
        ++lengths.back();
    }
}

bool TokenRows::mark(std::uint64_t array, std::uint64_t token) const {
    return (static_cast<unsigned char>(file_[array + token / 8]) >> token % 8 & 1) != 0;
}

void TokenRows::verify() const {
    if (ContentHash().add_bytes(file_.substr(TokenFileHeader::bytes)).digest() != header_.data_checksum)
        throw Error(fmt::format("{}: the checksum of the data is wrong.", name_),
                    "The file was damaged or changed. Make it again with `drover tokenize`.");
    const char* data = file_.data() + TokenFileHeader::bytes;
    for (std::uint64_t i = 0; i < header_.tokens; ++i) {
        const TokenId id = token_at(data, header_.token_bytes, i);
        if (id < 0 || static_cast<std::uint64_t>(id) > header_.largest_id)
            throw Error(
                fmt::format("{} holds token id {} at position {}, but the largest one is said to be {}.",
                            name_, id, i, header_.largest_id),
                make_again);
    }
    if (header_.block_size != 0 || header_.rows == 0) return;
    for (std::int64_t row = 0; row < size(); ++row) range(row);
    if (end(header_.rows - 1) != header_.tokens)
        throw Error(
            fmt::format("{}: its rows end at token {} of {}.", name_, end(header_.rows - 1), header_.tokens),
            make_again);
}

void TokenRows::check_vocabulary(std::int64_t vocab_size) const {
    if (header_.tokens > 0 && static_cast<std::int64_t>(header_.largest_id) >= vocab_size)
        throw Error(fmt::format("{} holds token id {}, but the model's vocab_size is {}.", name_,
                                header_.largest_id, vocab_size),
                    "Use the tokenizer that belongs to this model, or raise vocab_size.");
}

TokenFile::TokenFile(const std::filesystem::path& path)
    : path_(path), file_(path), rows_(file_.bytes(), path.string()) {}

TokenFile open_verified_token_file(const std::filesystem::path& path, const FileNotes& notes) {
    std::optional<TokenFile> verified;
    notes.remember(path, verified_note, [&] {
        verified.emplace(path).rows().verify();
        return std::string();
    });
    return verified ? std::move(*verified) : TokenFile(path);
}

}  // namespace drover
