#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace drover {

/// Facts about files (content hash, number of rows, …), kept in a folder and keyed by path, size,
/// modification time, change time and inode, so that a large corpus is read only once. Safe with several
/// processes: each note is a file that is written atomically.
class FileNotes {
  public:
    /// With an empty folder nothing is recorded.
    explicit FileNotes(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// The recorded result of `find_out` for `file` in its current state; calls it if there is none. `kind`
    /// distinguishes notes about one file and must be valid as a file name suffix. Error if the file does not
    /// exist.
    std::string remember(const std::filesystem::path& file, const std::string& kind,
                         const std::function<std::string()>& find_out) const;
    /// Hash of the file's content, 32 hexadecimal digits. Error when it cannot be read.
    std::string hash(const std::filesystem::path& file) const;

    /// Records what remember() will return for `file` in its current state. Only for a file that the caller
    /// has made and that is never changed in place: here it need not be some seconds old.
    void note(const std::filesystem::path& file, const std::string& kind, const std::string& text) const;

  private:
    /// The path of the note about `file` in its current state.
    std::filesystem::path place(const std::filesystem::path& file, const std::string& kind) const;
    void write(const std::filesystem::path& place, const std::string& content) const;

    std::filesystem::path folder_;
};

}  // namespace drover
