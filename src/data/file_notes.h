#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace drover {

/// What was found out about files (content hash, number of rows, …), kept in a folder by path, size,
/// modification time, change time and inode, so that a big corpus is read only once. Safe with several
/// processes: each note is a file that is written whole.
class FileNotes {
  public:
    /// With an empty folder nothing is remembered.
    explicit FileNotes(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// What `find_out` said about `file` as it is now, or says if it was not asked yet. `kind` tells notes
    /// about one file apart and must do as a suffix of a file name. Error when the file is not there.
    std::string remember(const std::filesystem::path& file, const std::string& kind,
                         const std::function<std::string()>& find_out) const;
    /// Hash of the file's content, 32 hexadecimal digits. Error when it cannot be read.
    std::string hash(const std::filesystem::path& file) const;

    /// Whether the file, as it is now, was marked as verified. Only for files that nobody changes in place.
    bool is_verified(const std::filesystem::path& file) const;
    void mark_verified(const std::filesystem::path& file) const;

  private:
    /// Where the note about `file` in its present state lies.
    std::filesystem::path place(const std::filesystem::path& file, const std::string& kind) const;
    void write(const std::filesystem::path& place, const std::string& content) const;

    std::filesystem::path folder_;
};

}  // namespace drover
