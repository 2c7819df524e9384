#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "io/lock_file.h"

namespace drover {

/// Durations; tests use shorter ones.
struct LockTimes {
    using Milliseconds = std::chrono::milliseconds;
    Milliseconds beat{20'000};      ///< between two heartbeats
    Milliseconds stale{600'000};    ///< without a heartbeat, after which a lock is taken over
    Milliseconds dying{2'000};      ///< that a process of this machine has to end
    Milliseconds unwritten{3'000};  ///< after which an empty lock file counts as abandoned
    Milliseconds pause{1'000};      ///< between two checks
    Milliseconds leftover{60'000};  ///< after which files left over from a take-over are removed

    /// How long the mark of a take-over stays. A process whose lock file is missing relies on it for as long
    /// as its last heartbeat is younger than `stale`.
    Milliseconds mark() const { return 2 * stale; }
};

/// A lock on a folder while a run writes to it: a file that names the process, with a heartbeat that shows
/// others, also on other hosts, that it is alive. The lock is removed when this object is destroyed;
/// FolderLockAttempt recognises a stale one.
class FolderLock {
  public:
    /// Creates the file; null when there is one. Error when it cannot be created. A separate thread writes
    /// the heartbeats; it takes no signals.
    static std::unique_ptr<FolderLock> make(const std::filesystem::path& file, LockRecord record,
                                            const LockTimes& times);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// The process that has taken the lock over ("process 17 on host node3"), even if it has since released
    /// it; empty while this process holds it. A file that was removed is created again, unless this process
    /// was suspended so long that another may have held the lock in the meantime.
    std::optional<std::string> taken_by();

    /// Removes the file if it is still this process's. May be called from any thread, and more than once.
    void release() noexcept;
    /// The same when the program is about to exit: does not wait, and leaves the thread running.
    void release_at_once() noexcept;

    const std::filesystem::path& file() const { return file_; }

  private:
    using Milliseconds = std::chrono::milliseconds;

    FolderLock(std::filesystem::path file, LockRecord record, const LockTimes& times, int descriptor);

    void start_heart();
    void beat_until_released();
    /// Looks at the file by its path, and sets taken_by_. What cannot be read now is checked again later.
    void look();
    void recreate();
    bool is_own(const std::optional<FoundLock>& found) const;
    /// The file by which another process has taken over this lock, if there is one. Error when that cannot be
    /// determined.
    std::optional<std::filesystem::path> find_mark() const;
    /// Since the last heartbeat after which the file was seen to be this process's.
    Milliseconds since_last_beat() const;
    void note_beat(Milliseconds begun);

    const std::filesystem::path file_;
    LockRecord record_;
    const LockTimes times_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<bool> released_ = false;  // set under the mutex, except by release_at_once()
    bool finished_ = false;               // under the mutex, as all that follows: release() was called
    std::optional<std::string> taken_by_;
    int descriptor_;            // heartbeats go to this process's file, even if another now has its name
    Milliseconds last_beat_{};  // by a clock that counts suspended time
    FileTime last_written_{};   // the same by the file system's
    std::thread heart_;
};

}  // namespace drover
