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

    /// What remember() shall say of `file` as it is now. Only for a file that the caller has made and that
    /// nobody changes in place: here it need not be some seconds old.
    void note(const std::filesystem::path& file, const std::string& kind, const std::string& text) const;

  private:
    /// Where the note about `file` in its present state lies.
    std::filesystem::path place(const std::filesystem::path& file, const std::string& kind) const;
    void write(const std::filesystem::path& place, const std::string& content) const;

    std::filesystem::path folder_;
};

}  // namespace drover
