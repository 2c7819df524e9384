#pragma once

#include <filesystem>

namespace drover {

/// Uses `path` as a lock between processes (and threads that open it separately) on one machine, or on a
/// network file system that supports flock. Waits until the holder releases it or dies. The lock file is
/// removed at the end, or left for programs that expect it to stay.
class FileLock {
  public:
    enum class Afterwards { removed, left };

    /// Error when the lock file cannot be created.
    explicit FileLock(const std::filesystem::path& path, Afterwards afterwards = Afterwards::removed);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    std::filesystem::path path_;
    Afterwards afterwards_;
    int descriptor_ = -1;
};

}  // namespace drover
