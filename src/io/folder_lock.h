#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "io/lock_file.h"

namespace drover {

/// How long things last; tests have less time.
struct LockTimes {
    using Milliseconds = std::chrono::milliseconds;
    Milliseconds beat{20'000};      ///< between two heartbeats
    Milliseconds stale{600'000};    ///< without a heartbeat, after which a lock is taken over
    Milliseconds dying{2'000};      ///< that a process of this machine has to end
    Milliseconds unwritten{3'000};  ///< after which an empty lock file counts as abandoned
    Milliseconds pause{1'000};      ///< between two looks
    Milliseconds leftover{60'000};  ///< after which files that a take-over left beside the lock file go

    /// How long the mark of a take-over stays. A process whose lock file is missing relies on it for as long
    /// as its last heartbeat is younger than `stale`.
    Milliseconds mark() const { return 2 * stale; }
};

/// A lock on a folder while a run writes to it: a file that names the process, with a heartbeat by which
/// others, on other hosts too, see that it lives. A lock is removed when this is destroyed; one that is left
/// behind is recognised by FolderLockAttempt.
class FolderLock {
  public:
    /// Creates the file; null when there is one. Error when it cannot be created. A separate thread writes
    /// the heartbeats; it takes no signals.
    static std::unique_ptr<FolderLock> make(const std::filesystem::path& file, LockRecord record,
                                            const LockTimes& times);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// Who has taken it from this process ("process 17 on host node3"), even if that one has given it back
    /// since; nothing while it is this process's. A file that somebody has removed is made again, unless this
    /// process has stood still so long that another may have come and gone in the meantime.
    std::optional<std::string> taken_by();

    /// Removes the file if it is still this process's. Any thread may do so, and more than once.
    void release() noexcept;
    /// The same before the program ends at once: does not wait, and leaves the thread running.
    void release_at_once() noexcept;

    const std::filesystem::path& file() const { return file_; }

  private:
    using Milliseconds = std::chrono::milliseconds;

    FolderLock(std::filesystem::path file, LockRecord record, const LockTimes& times, int descriptor);

    void start_heart();
    void beat_until_released();
    /// Looks at the file by its path, and sets taken_by_. Whatever cannot be read now is looked at again
    /// later.
    void look();
    void make_again();
    bool is_own(const std::optional<FoundLock>& found) const;
    /// The file by which another has taken this lock over, if there is one. Error when that is not known.
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
    int descriptor_;            // heartbeats go to this process's file, whatever has its name
    Milliseconds last_beat_{};  // by a clock that runs while the machine sleeps
    FileTime last_written_{};   // the same by the file system's
    std::thread heart_;
};

}  // namespace drover
