#include "hub/blob_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "core/byte_text.h"
#include "core/error.h"

namespace drover {
namespace {

constexpr std::size_t piece_bytes = 1 << 20;

std::string git_header(std::uint64_t size) {
    std::string header = fmt::format("blob {}", size);
    header.push_back('\0');
    return header;
}

/// Gives the first `size` bytes of a file to `take`; false when there are fewer.
template <class Take>
bool read_pieces(const std::filesystem::path& file, std::uint64_t size, Take&& take) {
    std::ifstream in(file, std::ios::binary);
    std::vector<char> piece(piece_bytes);
    while (size > 0) {
        const auto count = static_cast<std::streamsize>(std::min<std::uint64_t>(size, piece.size()));
        if (!in.read(piece.data(), count)) return false;
        take(std::string_view(piece.data(), static_cast<std::size_t>(count)));
        size -= static_cast<std::uint64_t>(count);
    }
    return static_cast<bool>(in);
}

}  // namespace

BlobHash::BlobHash(std::string expected, std::uint64_t size) : expected_(std::move(expected)) {
    require(expected_.empty() || expected_.size() == 40 || expected_.size() == 64,
            "a checksum of another kind");
    if (expected_.size() == 40) sha1_.add(git_header(size));
}

void BlobHash::add(std::string_view bytes) {
    if (expected_.size() == 40)
        sha1_.add(bytes);
    else if (!expected_.empty())
        sha256_.add(bytes);
}

bool BlobHash::matches() {
    if (expected_.empty()) return true;
    return expected_ == (expected_.size() == 40 ? hex_text(sha1_.digest()) : hex_text(sha256_.digest()));
}

std::string git_blob_name(std::string_view content) {
    return hex_text(Sha1().add(git_header(content.size())).add(content).digest());
}

std::string file_sha256(const std::filesystem::path& file) {
    Sha256 hash;
    std::error_code failure;
    const std::uint64_t size = std::filesystem::file_size(file, failure);
    if (failure || !read_pieces(file, size, [&](std::string_view piece) { hash.add(piece); }))
        throw Error(fmt::format("{} cannot be read.", file.string()), "Check its permissions and the disk.");
    return hex_text(hash.digest());
}

bool add_file(BlobHash& hash, const std::filesystem::path& file, std::uint64_t size) {
    return read_pieces(file, size, [&](std::string_view piece) { hash.add(piece); });
}

}  // namespace drover
