#include "io/folder_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "core/error.h"

namespace drover {

std::unique_ptr<FolderLock> FolderLock::make(const std::filesystem::path& file, LockRecord record,
                                             std::chrono::milliseconds period) {
    if (!create_file_exclusively(file, record.text())) return nullptr;
    // Where it took long to write the file, another process may have taken the empty one for abandoned.
    const std::optional<FoundLock> made = look_at_lock(file);
    if (!made || !made->record || made->record->token != record.token) return nullptr;
    return std::unique_ptr<FolderLock>(new FolderLock(file, std::move(record), period));
}

FolderLock::FolderLock(std::filesystem::path file, LockRecord record, std::chrono::milliseconds period)
    : file_(std::move(file)), record_(std::move(record)), period_(period) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    heart_ = std::thread([this] { beat_until_released(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void FolderLock::beat_until_released() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, period_, [this] { return released_; })) {
        look();
        if (!taken_by_) write_beat();
    }
}

/// A beat that cannot be written is followed by the next one.
void FolderLock::write_beat() {
    ++record_.beat;
    const int descriptor = open(file_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    const std::string text = record_.text();
    if (pwrite(descriptor, text.data(), text.size(), 0) > 0) fdatasync(descriptor);
    close(descriptor);
}

void FolderLock::look() {
    if (taken_by_) return;
    const std::filesystem::path mark = take_over_mark(file_, record_.token);
    try {
        std::optional<FoundLock> found = look_at_lock(file_);
        if (!found) {
            if (const std::optional<FoundLock> taker = look_at_lock(mark))
                taken_by_ = taker->holder();  // and it has ended already
            else if (!create_file_exclusively(file_, record_.text()))
                found = look_at_lock(file_);
        }
        const bool own = !found || (found->record && found->record->token == record_.token);
        if (!own) taken_by_ = found->holder();
    } catch (const Error&) {
        // The folder is gone too, or cannot be written now.
    }
    if (taken_by_) unlink(mark.c_str());
}

std::optional<std::string> FolderLock::taken_by() {
    const std::lock_guard lock(mutex_);
    look();
    return taken_by_;
}

void FolderLock::release() noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(released_, true)) return;
    }
    wake_.notify_all();
    heart_.join();
    const std::optional<FoundLock> found = look_at_lock(file_);
    if (!found || !found->record || found->record->token != record_.token) return;
    remove_lock_leftovers(file_, leftover_age);
    unlink(file_.c_str());
}

}  // namespace drover
