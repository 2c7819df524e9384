#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "core/process_identity.h"

/// The file by which a run tells others that it writes to a folder.
namespace drover {

/// A job of a scheduler, which may start it again elsewhere when its host is lost.
struct BatchJob {
    std::string id{};  ///< empty: none
    std::int64_t restarts = 0;

    /// As Slurm's variables say.
    static BatchJob from_environment();
    bool is_restart_of(const BatchJob& earlier) const {
        return !id.empty() && id == earlier.id && restarts > earlier.restarts;
    }
};

/// What a lock file says.
struct LockRecord {
    ProcessIdentity process;
    std::string token;  ///< no two locks have the same
    BatchJob job{};
    std::int64_t beat = 0;  ///< counts up while the process lives

    /// Of this process, with a token of its own.
    static LockRecord own(BatchJob job);

    /// Of one length, whatever `beat` is: a lock file is written over in place.
    std::string text() const;
    /// Nothing when it is not such a text.
    static std::optional<LockRecord> parse(std::string_view text);
};

/// A time of the file system, whose clock may not be this machine's.
using FileTime = std::chrono::nanoseconds;

/// A lock file as it was found.
struct FoundLock {
    std::optional<LockRecord> record;  ///< nothing: it cannot be read
    bool empty = false;                ///< its process has not written it yet
    ino_t inode = 0;
    FileTime written{};

    /// Who has it: "process 17 on host node3", or "an unknown process".
    std::string holder() const;
    /// Equal for two looks at one lock, also when a beat is between them.
    std::string identity() const;
};

/// Nothing when there is none.
std::optional<FoundLock> look_at_lock(const std::filesystem::path& file);

/// Whether there is no such file, for certain: one that cannot be looked at now may be there.
bool is_absent(const std::filesystem::path& file);

/// Creates a file that does not exist, and waits until it is on the disk. False when it exists; Error when
/// it cannot be created, and then there is none.
bool create_file_exclusively(const std::filesystem::path& file, std::string_view text);
/// The same, and leaves it open for writing: its descriptor, or nothing when there is a file.
std::optional<int> open_exclusively(const std::filesystem::path& file, std::string_view text);

/// A file beside a lock file, which belongs to one lock: "drover.lock.taken-3f…".
std::filesystem::path beside_lock(const std::filesystem::path& file, std::string_view purpose,
                                  std::string_view identity);
/// The process that created this file may take that lock over. The file names it.
inline std::filesystem::path take_over_mark(const std::filesystem::path& file, std::string_view identity) {
    return beside_lock(file, "taken", identity);
}

/// How a lock is named that cannot be read.
std::string inode_identity(ino_t inode);

/// The time of an open file; nothing when it cannot be read.
std::optional<FileTime> time_of_open_file(int descriptor);

/// The file system's time now, from a file that is created for it beside `file`. Error when that fails.
FileTime file_system_time(const std::filesystem::path& file);

/// Removes files beside a lock file that are older than `age`, and marks of take-overs that are older than
/// `mark_age`.
void remove_lock_leftovers(const std::filesystem::path& file, std::chrono::milliseconds age,
                           std::chrono::milliseconds mark_age) noexcept;

}  // namespace drover
