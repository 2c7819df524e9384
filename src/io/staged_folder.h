#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace drover {

/// Size and hash of a finished file.
struct FileDigest {
    std::uint64_t bytes = 0;
    std::string hash;  ///< ContentHash::hex() of its bytes

    bool operator==(const FileDigest&) const = default;
};

/// Error when the file cannot be read.
FileDigest digest_file(const std::filesystem::path& path);

/// Rows of equal length in a file: row i begins at offset + i * stride. Whole stretches are one row.
struct RowsInFile {
    std::uint64_t offset = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t rows = 1;
    std::uint64_t stride = 0;

    std::uint64_t bytes() const { return row_bytes * rows; }
};

/// A folder that is first written as `<folder>.partial` and then appears at its place complete or not at all.
/// Every rank of a run has one for the same folder: one of them creates and publishes, all write and flush.
/// Failures are Errors that name the file.
class StagedFolder {
  public:
    explicit StagedFolder(std::filesystem::path folder);
    ~StagedFolder();
    StagedFolder(const StagedFolder&) = delete;
    StagedFolder& operator=(const StagedFolder&) = delete;

    const std::filesystem::path& folder() const { return folder_; }
    const std::filesystem::path& staging() const { return staging_; }

    /// Makes the empty staging folder; removes what an earlier attempt left there.
    void create();
    /// Makes a file of this size, reserved on the disk where the file system can.
    void create_file(const std::string& name, std::uint64_t bytes);
    /// Writes `place.bytes()` bytes to a file that was created, here or by another rank.
    void write(const std::string& name, const RowsInFile& place, const std::byte* data);
    /// Waits until all that this object wrote is on the disk, reads it back from there, and compares.
    void flush();
    /// Waits until every file of the folder, of all writers, is on the disk; Error where a safetensors file
    /// has no valid header. Files in folders of it are named with these ("folder/file").
    std::map<std::string, FileDigest> seal() const;

    /// Moves the sealed folder to its place. An existing folder is exchanged with it in one step and then
    /// removed.
    void publish();
    /// Moves the sealed files into `folder` (which may hold others), weights first and the files that say how
    /// to read them last, and removes weight files of an earlier save. Each move is atomic.
    void publish_files_into(const std::filesystem::path& folder);
    /// Removes the staging folder, if possible.
    void discard() noexcept;

  private:
    struct Written {
        std::string name;
        RowsInFile place;
        std::array<unsigned char, 16> hash;
    };

    int descriptor_of(const std::string& name);
    void close_all() noexcept;
    void check_written(const std::string& name) const;

    std::filesystem::path folder_, staging_;
    std::map<std::string, int> descriptors_;
    std::vector<Written> written_;
};

/// Removes a folder so that it is never seen half removed: it is renamed to a `.partial` first.
void remove_folder_safely(const std::filesystem::path& folder);

/// Removes what interrupted saves and removals left in `output_dir`: folders whose names end in ".partial".
/// Returns their names.
std::vector<std::string> remove_partial_folders(const std::filesystem::path& output_dir);

}  // namespace drover
