#pragma once

#include <filesystem>
#include <memory>
#include <mutex>

#include "io/folder_lock_attempt.h"
#include "run/messages.h"
#include "run/process_group.h"
#include "run/settings/run_settings.h"

namespace drover {

/// How to open the folder that a run writes to.
struct OutputFolderRequest {
    std::filesystem::path folder;
    bool steal_lock = false;  ///< take it from a run that still holds it
    SettingNames names{};
    LockTimes times{};
};

/// The folder that a run writes to (output_dir). It is created, tested and locked before anything else, and
/// stays locked until this object is destroyed. The first rank does this for all.
class OutputFolder {
  public:
    /// Does nothing yet. All arguments must outlive this object.
    OutputFolder(const ProcessGroup& group, const Messages& messages, OutputFolderRequest request)
        : group_(group), messages_(messages), request_(std::move(request)) {}
    ~OutputFolder() { release(); }
    OutputFolder(const OutputFolder&) = delete;
    OutputFolder& operator=(const OutputFolder&) = delete;

    /// Creates and locks the folder. Collective; if another run seems to have died, this waits until that is
    /// certain. All ranks throw if the folder cannot be written to or another run holds it.
    void take();

    /// Called before files are overwritten. Collective: an AgreedError if another run has taken the folder.
    void check_still_ours() const;

    /// Unlocks the folder for good, and removes it if the run created it and wrote nothing. Any thread may
    /// call this, even while another takes the folder.
    void release() noexcept;
    /// The same before the program ends immediately: waits only briefly for the file system or a thread.
    void release_at_once() noexcept;

  private:
    std::unique_ptr<FolderLock> advance(FolderLockAttempt& attempt);
    void make_folder();

    const ProcessGroup& group_;
    const Messages& messages_;
    OutputFolderRequest request_;
    std::timed_mutex mutex_;  ///< guards the members below
    bool made_ = false;       ///< the folder was created by this run
    bool released_ = false;
    std::unique_ptr<FolderLock> lock_;  ///< on the first rank
};

/// A warning if the file system of a folder, which need not exist yet, has less than the `bytes` left that
/// `purpose` ("A checkpoint") takes; otherwise empty.
std::string space_warning(const std::filesystem::path& folder, std::uint64_t bytes, std::string_view purpose,
                          const SettingNames& names = {});

}  // namespace drover
