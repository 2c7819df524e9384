#pragma once

#include <functional>

#include "io/folder_lock.h"

namespace drover {

struct LockRequest {
    std::filesystem::path folder;
    bool steal = false;                       ///< take it from any other process
    std::string steal_name = "--steal_lock";  ///< the flag with which the user requests that
    BatchJob job{};
    LockTimes times{};
};

/// Gets the lock of a folder, or finds that another process holds it. That process's lock is taken over
///
/// - at once, where its process has ended on this machine, or where its job was started again as this one;
/// - when no heartbeat was written for some minutes. The file system's clock gives the age of the last one;
///   because the clocks of two hosts may differ, the file is also watched for new ones.
///
/// Of several processes that take over a lock at the same time, one gets it.
class FolderLockAttempt {
  public:
    using Say = std::function<void(const std::string&)>;

    static constexpr const char* file_name = "drover.lock";

    /// The folder must exist.
    FolderLockAttempt(LockRequest request, Say say);

    /// The lock; null: call again after a pause. Error when a living process has the lock, or the folder
    /// cannot be written to.
    std::unique_ptr<FolderLock> advance();

  private:
    enum class Verdict : std::uint8_t { take, wait, refuse };

    /// `reason`: why the lock is taken over.
    Verdict judge(const FoundLock& found, std::string& reason);
    void watch(const FoundLock& found);
    std::chrono::milliseconds watched() const;
    /// Since the last heartbeat.
    std::chrono::milliseconds age(const FoundLock& found) const;
    /// Time left until it stops waiting for heartbeats.
    std::chrono::milliseconds left_to_wait(const FoundLock& found) const;
    bool requeued(const FoundLock& found) const;
    void tell_of_wait(const FoundLock& found);
    void remove_abandoned(const FoundLock& found) const;
    [[noreturn]] void refuse(const FoundLock& found) const;

    LockRequest request_;
    Say say_;
    std::filesystem::path file_;
    LockRecord record_;

    std::optional<FoundLock> seen_;                ///< at the last check
    std::chrono::steady_clock::time_point since_;  ///< when it was first seen in this state
    bool beats_ = false;                           ///< it was seen to change
    bool told_ = false;
};

}  // namespace drover
