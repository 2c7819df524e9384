#include "run/output_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <thread>

#include "core/arena.h"
#include "core/existing_folder.h"
#include "core/number_text.h"

namespace drover {

namespace fs = std::filesystem;

void OutputFolder::take() {
    std::optional<FolderLockAttempt> attempt;
    group_.together([&] {
        if (!group_.is_first()) return;
        attempt.emplace(LockRequest{.folder = request_.folder,
                                    .steal = request_.steal_lock,
                                    .steal_name = request_.names.steal_lock,
                                    .job = BatchJob::from_environment(),
                                    .times = request_.times},
                        [this](const std::string& line) { messages_.warning(line); });
    });
    // The ranks synchronize after every attempt: the whole wait may be longer than their timeout.
    int waiting = 1;
    while (waiting != 0) {
        group_.together([&] {
            const std::lock_guard lock(mutex_);
            if (attempt && !released_) lock_ = advance(*attempt);
        });
        if (attempt && !lock_) std::this_thread::sleep_for(request_.times.pause);
        waiting = group_.largest(attempt && !lock_ ? 1 : 0);
    }
}

/// A run that holds the folder and fails may remove it, if that run created it.
std::unique_ptr<FolderLock> OutputFolder::advance(FolderLockAttempt& attempt) {
    make_folder();
    try {
        return attempt.advance();
    } catch (const Error&) {
        std::error_code failure;
        if (fs::exists(request_.folder, failure) || failure) throw;
        return nullptr;
    }
}

void OutputFolder::make_folder() {
    std::error_code failure;
    if (fs::exists(request_.folder, failure) && !fs::is_directory(request_.folder, failure))
        throw Error(fmt::format("{} {} is a file.", request_.names.output_dir, request_.folder.string()),
                    "Name a folder.");
    if (fs::create_directories(request_.folder, failure)) made_ = true;
    if (failure)
        throw Error(fmt::format("{} {} cannot be made: {}.", request_.names.output_dir,
                                request_.folder.string(), failure.message()),
                    "Name a folder that can be written to.");
}

void OutputFolder::check_still_ours() const {
    std::string taken_by;
    if (lock_) taken_by = lock_->taken_by().value_or("");
    taken_by = group_.from_first(taken_by);
    if (taken_by.empty()) return;
    throw AgreedError(
        fmt::format("The folder {} was taken from this run by {}, so it stops before it writes there again.",
                    request_.folder.string(), taken_by),
        "Give each of the two runs a folder of its own.");
}

void OutputFolder::release() noexcept {
    const std::lock_guard lock(mutex_);
    released_ = true;
    if (lock_) lock_->release();
    if (made_) rmdir(request_.folder.c_str());  // fails if it is not empty
}

void OutputFolder::release_at_once() noexcept {
    // If a take() or release() hangs in the file system, the lock stays; the next run sees that this process
    // has ended.
    const std::unique_lock lock(mutex_, std::chrono::seconds(2));
    if (!lock) return;
    released_ = true;
    if (lock_) lock_->release_at_once();
    if (made_) rmdir(request_.folder.c_str());
}

std::string space_warning(const fs::path& folder, std::uint64_t bytes, std::string_view purpose,
                          const SettingNames& names) {
    std::error_code failure;
    const fs::space_info space = fs::space(existing_folder(folder), failure);
    if (failure || space.available >= bytes) return "";
    return fmt::format(
        "{} takes about {}, and the file system of {} has {} left. Free some space before it is written, or "
        "choose another {}.",
        purpose, bytes_text(bytes), folder.string(), bytes_text(space.available), names.output_dir);
}

}  // namespace drover
