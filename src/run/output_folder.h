#pragma once

#include <filesystem>
#include <memory>
#include <mutex>

#include "io/folder_lock_attempt.h"
#include "run/messages.h"
#include "run/process_group.h"
#include "run/settings/run_settings.h"

namespace drover {

/// What is asked of the folder that a run writes to.
struct OutputFolderRequest {
    std::filesystem::path folder;
    bool steal_lock = false;  ///< take it from a run that still has it
    SettingNames names{};
    LockTimes times{};
};

/// The folder that a run writes to (output_dir): made, tried and locked before anything else is done, and
/// locked until this is destroyed. The first rank does it for all.
class OutputFolder {
  public:
    /// Does nothing yet. What is given must outlive it.
    OutputFolder(const ProcessGroup& group, const Messages& messages, OutputFolderRequest request)
        : group_(group), messages_(messages), request_(std::move(request)) {}
    ~OutputFolder() { release(); }
    OutputFolder(const OutputFolder&) = delete;
    OutputFolder& operator=(const OutputFolder&) = delete;

    /// Makes and locks it. Collective; where another run seems to have died, this waits until that is
    /// certain. All ranks throw when the folder cannot be written to or another run has it.
    void take();

    /// Called before files are written over. Collective: an AgreedError when another run has taken the
    /// folder.
    void check_still_ours() const;

    /// Unlocks it for good, and removes it if the run made it and wrote nothing. Any thread may do so, also
    /// while another takes it.
    void release() noexcept;
    /// The same before the program ends at once: waits for no file system and no thread for long.
    void release_at_once() noexcept;

  private:
    std::unique_ptr<FolderLock> go_on(FolderLockAttempt& attempt);
    void make_folder();

    const ProcessGroup& group_;
    const Messages& messages_;
    OutputFolderRequest request_;
    std::timed_mutex mutex_;  ///< of what follows
    bool made_ = false;       ///< the folder, by this run
    bool released_ = false;
    std::unique_ptr<FolderLock> lock_;  ///< of the first rank
};

/// A warning when the file system of a folder, which need not exist yet, has less than `bytes` left, what
/// `purpose` ("A checkpoint") takes; empty when there is enough.
std::string space_warning(const std::filesystem::path& folder, std::uint64_t bytes, std::string_view purpose,
                          const SettingNames& names = {});

}  // namespace drover
