#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace drover {

/// Remembers, in a folder, the content hash of files by (path, size, modification time, inode), so that a big
/// corpus is read only once. Safe with several processes: each write is whole, and what is lost when two
/// write at once is only computed again.
class FileHashes {
  public:
    explicit FileHashes(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// Hash of the file's content, 32 hexadecimal digits. Error when it cannot be read.
    std::string hash(const std::filesystem::path& file) const;

    /// Whether the file, as it is now, was marked as verified. Only for files that nobody changes in place.
    bool is_verified(const std::filesystem::path& file) const;
    void mark_verified(const std::filesystem::path& file) const;

  private:
    /// Where the note about `file` in its present state lies.
    std::filesystem::path note(const std::filesystem::path& file, const char* kind) const;
    void write_note(const std::filesystem::path& note, const std::string& content) const;

    std::filesystem::path folder_;
};

}  // namespace drover
