#include "io/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// Counts the time during which the machine is suspended, unlike steady_clock.
milliseconds time_since_boot() {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(now.tv_sec) +
                                                    std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace

std::unique_ptr<FolderLock> FolderLock::make(const fs::path& file, LockRecord record,
                                             const LockTimes& times) {
    const milliseconds begun = time_since_boot();
    const std::optional<int> descriptor = open_exclusively(file, record.text());
    if (!descriptor) return nullptr;
    // Where it took long to write the file, another process may have considered the empty file abandoned.
    std::unique_ptr<FolderLock> lock(new FolderLock(file, std::move(record), times, *descriptor));
    lock->note_beat(begun);
    if (!lock->is_own(look_at_lock(file))) return nullptr;
    lock->start_heart();
    return lock;
}

FolderLock::FolderLock(fs::path file, LockRecord record, const LockTimes& times, int descriptor)
    : file_(std::move(file)), record_(std::move(record)), times_(times), descriptor_(descriptor) {}

FolderLock::~FolderLock() {
    release();
    close(descriptor_);
}

void FolderLock::start_heart() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::string failure;
    try {
        heart_ = std::thread([this] { beat_until_released(); });
    } catch (const std::system_error& error) {
        failure = error.code().message();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!failure.empty())
        throw Error(
            fmt::format("The thread that keeps the lock {} cannot be started: {}.", file_.string(), failure),
            "Allow more processes (ulimit -u), or end others.");
}

void FolderLock::beat_until_released() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, times_.beat, [this] { return released_.load(); })) {
        const milliseconds begun = time_since_boot();
        ++record_.beat;
        const std::string text = record_.text();
        const bool written =
            pwrite(descriptor_, text.data(), text.size(), 0) > 0 && fdatasync(descriptor_) == 0;
        look();
        if (taken_by_) return;
        if (written && is_own(look_at_lock(file_))) note_beat(begun);
    }
}

/// The time is taken before writing, because this process may be suspended at any point.
void FolderLock::note_beat(milliseconds begun) {
    last_beat_ = begun;
    last_written_ = time_of_open_file(descriptor_).value_or(last_written_);
}

milliseconds FolderLock::since_last_beat() const {
    // A virtual machine may not notice that it was paused; its file server continues to run.
    const FileTime by_files = file_system_time(file_) - last_written_;
    return std::max(time_since_boot() - last_beat_, std::chrono::duration_cast<milliseconds>(by_files));
}

bool FolderLock::is_own(const std::optional<FoundLock>& found) const {
    return found && found->record && found->record->token == record_.token;
}

std::optional<fs::path> FolderLock::find_mark() const {
    struct stat status {};
    std::vector<std::string> identities{record_.token};
    // Another user who cannot read the file identifies it by its inode number.
    if (fstat(descriptor_, &status) == 0) identities.push_back(inode_identity(status.st_ino));
    for (const std::string& identity : identities) {
        const fs::path mark = take_over_mark(file_, identity);
        if (lstat(mark.c_str(), &status) == 0) return mark;
        if (errno != ENOENT) throw Error(fmt::format("{} cannot be looked at.", mark.string()));
    }
    return std::nullopt;
}

void FolderLock::look() {
    if (taken_by_ || released_) return;
    try {
        const std::optional<FoundLock> found = look_at_lock(file_);
        if (is_own(found)) return;
        if (const std::optional<fs::path> mark = find_mark()) {
            const std::optional<FoundLock> taker = look_at_lock(*mark);
            taken_by_ = taker ? taker->holder() : FoundLock{}.holder();
            unlink(mark->c_str());
        } else if (found && found->record) {
            taken_by_ = found->holder();
        } else if (is_absent(file_)) {
            recreate();
        }
    } catch (const Error&) {
        // The folder is gone as well, or cannot be read or written now.
    }
}

/// For when there is no mark of a take-over, or the take-over was so long ago that the mark is gone.
void FolderLock::recreate() {
    const auto was_suspended = [this] {
        const bool long_enough = since_last_beat() >= times_.stale;
        if (long_enough) taken_by_ = "a run that has ended since";
        return long_enough;
    };
    if (was_suspended()) return;
    const milliseconds begun = time_since_boot();
    const std::optional<int> made = open_exclusively(file_, record_.text());
    if (!made) {
        const std::optional<FoundLock> other = look_at_lock(file_);
        if (other && other->record) taken_by_ = other->holder();
        return;
    }
    close(descriptor_);
    descriptor_ = *made;
    if (was_suspended())  // between the two checks
        unlink(file_.c_str());
    else
        note_beat(begun);
}

std::optional<std::string> FolderLock::taken_by() {
    const std::lock_guard lock(mutex_);
    look();
    return taken_by_;
}

void FolderLock::release() noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(finished_, true)) return;
        released_ = true;
    }
    wake_.notify_all();
    if (heart_.joinable()) heart_.join();
    if (!is_own(look_at_lock(file_))) return;
    remove_lock_leftovers(file_, times_.leftover, times_.mark());
    unlink(file_.c_str());
}

void FolderLock::release_at_once() noexcept {
    released_ = true;
    if (is_own(look_at_lock(file_))) unlink(file_.c_str());
}

}  // namespace drover
