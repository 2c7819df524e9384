#pragma once

#include <functional>

#include "io/folder_lock.h"

namespace drover {

/// How long things last; tests have less time.
struct LockTimes {
    using Milliseconds = std::chrono::milliseconds;
    Milliseconds beat{20'000};      ///< between two heartbeats
    Milliseconds stale{600'000};    ///< without a heartbeat, after which a lock is taken over
    Milliseconds dying{2'000};      ///< that a process of this machine is given to end
    Milliseconds unwritten{3'000};  ///< after which an empty lock file is taken for abandoned
    Milliseconds pause{1'000};      ///< between two looks
};

struct LockRequest {
    std::filesystem::path folder;
    bool steal = false;  ///< take it, whoever has it
    BatchJob job{};
    LockTimes times{};
};

/// Gets the lock of a folder, or finds out that somebody has it. Another's lock is taken over
///
/// - at once, where its process has ended on this machine, or where its job was started again as this one;
/// - when no heartbeat was written for some minutes. Whether one is written is seen by watching the file, and
///   how old the last one is, by the file system's clock: those of two hosts may differ.
///
/// Of several processes that take over a lock at the same time, one gets it.
class FolderLockAttempt {
  public:
    using Say = std::function<void(const std::string&)>;

    static constexpr const char* file_name = "drover.lock";

    /// The folder must exist.
    FolderLockAttempt(LockRequest request, Say say);

    /// The lock; null: it is to be called again after a pause. Error when a living process has the lock, or
    /// the folder cannot be written to.
    std::unique_ptr<FolderLock> go_on();

  private:
    enum class Verdict : std::uint8_t { take, wait, refuse };

    /// `reason`: why it is taken.
    Verdict judge(const FoundLock& found, std::string& reason);
    void watch(const FoundLock& found);
    std::chrono::milliseconds watched() const;
    /// Since the last heartbeat.
    std::chrono::milliseconds age(const FoundLock& found) const;
    bool requeued(const FoundLock& found) const;
    void tell_of_wait(const FoundLock& found);
    void remove_abandoned(const FoundLock& found) const;
    [[noreturn]] void refuse(const FoundLock& found) const;

    LockRequest request_;
    Say say_;
    std::filesystem::path file_;
    LockRecord record_;

    std::optional<FoundLock> seen_;                ///< at the last look
    std::chrono::steady_clock::time_point since_;  ///< when it was first seen as it is
    bool beats_ = false;                           ///< it was seen to change
    bool told_ = false;
};

}  // namespace drover
