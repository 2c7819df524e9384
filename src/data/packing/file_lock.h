#pragma once

#include <filesystem>

namespace drover {

/// Holds `path` as a lock among processes (and among threads that open it separately) of one machine, or of a
/// network file system that supports flock. Waits until the holder is gone, also when it died. The lock file
/// is removed at the end.
class FileLock {
  public:
    /// Error when the lock file cannot be made.
    explicit FileLock(const std::filesystem::path& path);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    std::filesystem::path path_;
    int descriptor_ = -1;
};

}  // namespace drover
