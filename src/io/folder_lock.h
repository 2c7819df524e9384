#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "io/lock_file.h"

namespace drover {

/// A lock on a folder while a run writes to it: a file that names the process, with a heartbeat by which
/// others, on other hosts too, see that it lives. A lock is removed when this is destroyed; one that is left
/// behind is recognised by FolderLockAttempt.
class FolderLock {
  public:
    /// After which files that a take-over leaves beside the lock file are removed.
    static constexpr std::chrono::seconds leftover_age{60};

    /// Makes the file; null when there is one. Error when it cannot be made. A thread of its own writes a
    /// beat per `period`; it takes no signals.
    static std::unique_ptr<FolderLock> make(const std::filesystem::path& file, LockRecord record,
                                            std::chrono::milliseconds period);
    ~FolderLock() { release(); }
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// Who has taken it from this process ("process 17 on host node3"), even if that one has given it back
    /// since; nothing while it is this process's. A file that somebody has removed is made again.
    std::optional<std::string> taken_by();

    /// Removes the file if it is still this process's. Any thread may do so, and more than once.
    void release() noexcept;

    const std::filesystem::path& file() const { return file_; }

  private:
    FolderLock(std::filesystem::path file, LockRecord record, std::chrono::milliseconds period);

    void beat_until_released();
    void write_beat();
    /// Sets taken_by_.
    void look();

    std::filesystem::path file_;
    LockRecord record_;
    std::chrono::milliseconds period_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool released_ = false;                // under the mutex
    std::optional<std::string> taken_by_;  // under the mutex
    std::thread heart_;
};

}  // namespace drover
