#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/sha1.h"
#include "core/sha256.h"

namespace drover {

/// Checks content against the name that the Hub gives it: SHA-256 for 64 hexadecimal digits, git's name of
/// a file (SHA-1 with its size before it) for 40. Anything matches an empty name.
class BlobHash {
  public:
    BlobHash(std::string expected, std::uint64_t size);

    void add(std::string_view bytes);
    /// Whether everything added is the content of that name. Nothing can be added afterwards.
    bool matches();

  private:
    std::string expected_;
    Sha256 sha256_;
    Sha1 sha1_;
};

/// Git's name of a file with this content.
std::string git_blob_name(std::string_view content);

/// SHA-256 of a file, in hexadecimal. Error when it cannot be read.
std::string file_sha256(const std::filesystem::path& file);

/// Adds the first `size` bytes of a file; false when it has fewer or cannot be read.
bool add_file(BlobHash& hash, const std::filesystem::path& file, std::uint64_t size);

}  // namespace drover
