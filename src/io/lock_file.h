#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "core/machine_identity.h"

/// The file that tells other processes that a run writes to a folder.
namespace drover {

/// A job of a scheduler, which may start it again elsewhere when its host is lost.
struct BatchJob {
    std::string id{};  ///< empty: none
    std::int64_t restarts = 0;

    /// From Slurm's variables.
    static BatchJob from_environment();
    bool is_restart_of(const BatchJob& earlier) const {
        return !id.empty() && id == earlier.id && restarts > earlier.restarts;
    }
};

/// The contents of a lock file.
struct LockRecord {
    ProcessIdentity process;
    std::string token;  ///< unique to each lock
    BatchJob job{};
    std::int64_t beat = 0;  ///< incremented while the process lives

    /// For this process, with a new token.
    static LockRecord own(BatchJob job);

    /// The same length for every `beat`: a lock file is overwritten in place.
    std::string text() const;
    /// Empty when it is not such a text.
    static std::optional<LockRecord> parse(std::string_view text);
};

/// A time of the file system, whose clock may differ from this machine's.
using FileTime = std::chrono::nanoseconds;

/// A lock file as it was found.
struct FoundLock {
    std::optional<LockRecord> record;  ///< nothing: it cannot be read
    bool empty = false;                ///< its process has not written it yet
    ino_t inode = 0;
    FileTime written{};

    /// The process that holds it: "process 17 on host node3", or "an unknown process".
    std::string holder() const;
    /// Equal for two looks at one lock, even with a heartbeat between them.
    std::string identity() const;
};

/// Empty when there is none.
std::optional<FoundLock> look_at_lock(const std::filesystem::path& file);

/// Whether the file certainly does not exist: one that cannot be checked now may exist.
bool is_absent(const std::filesystem::path& file);

/// Creates a file that does not exist, and waits until it is on the disk. False when it exists; Error when
/// it cannot be created, and then there is none.
bool create_file_exclusively(const std::filesystem::path& file, std::string_view text);
/// The same, and leaves it open for writing: its descriptor, or empty if the file exists.
std::optional<int> open_exclusively(const std::filesystem::path& file, std::string_view text);

/// A file beside a lock file, which belongs to one lock: "drover.lock.taken-3f…".
std::filesystem::path beside_lock(const std::filesystem::path& file, std::string_view purpose,
                                  std::string_view identity);
/// The process that created this file may take over that lock. The file names the process.
inline std::filesystem::path take_over_mark(const std::filesystem::path& file, std::string_view identity) {
    return beside_lock(file, "taken", identity);
}

/// Identity of a lock that cannot be read.
std::string inode_identity(ino_t inode);

/// The time of an open file; empty when it cannot be read.
std::optional<FileTime> time_of_open_file(int descriptor);

/// The file system's time now, from a file that is created for it beside `file`. Error when that fails.
FileTime file_system_time(const std::filesystem::path& file);

/// Removes files beside a lock file that are older than `age`, and marks of take-overs that are older than
/// `mark_age`.
void remove_lock_leftovers(const std::filesystem::path& file, std::chrono::milliseconds age,
                           std::chrono::milliseconds mark_age) noexcept;

}  // namespace drover
