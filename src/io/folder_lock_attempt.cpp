#include "io/folder_lock_attempt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string time_text(milliseconds time) {
    const auto seconds = duration_cast<std::chrono::seconds>(time).count();
    return seconds >= 120 ? fmt::format("{} minutes", seconds / 60) : fmt::format("{} seconds", seconds);
}

}  // namespace

FolderLockAttempt::FolderLockAttempt(LockRequest request, Say say)
    : request_(std::move(request)),
      say_(std::move(say)),
      file_(request_.folder / file_name),
      record_(LockRecord::own(request_.job)) {}

std::unique_ptr<FolderLock> FolderLockAttempt::advance() {
    if (auto lock = FolderLock::make(file_, record_, request_.times)) {
        remove_lock_leftovers(file_, request_.times.leftover, request_.times.mark());
        return lock;
    }
    const std::optional<FoundLock> found = look_at_lock(file_);
    if (!found) return nullptr;  // removed a moment ago
    watch(*found);
    std::string reason;
    switch (judge(*found, reason)) {
        case Verdict::refuse:
            refuse(*found);
        case Verdict::wait:
            return nullptr;
        case Verdict::take:
            break;
    }
    remove_abandoned(*found);
    auto lock = FolderLock::make(file_, record_, request_.times);
    if (lock)
        say_(fmt::format("Took over the lock on {} from {}: {}.", request_.folder.string(), found->holder(),
                         reason));
    return lock;
}

void FolderLockAttempt::watch(const FoundLock& found) {
    const bool same = seen_ && seen_->identity() == found.identity();
    if (same && seen_->written == found.written) return;
    beats_ = same;
    since_ = steady_clock::now();
    seen_ = found;
}

milliseconds FolderLockAttempt::watched() const {
    return duration_cast<milliseconds>(steady_clock::now() - since_);
}

milliseconds FolderLockAttempt::age(const FoundLock& found) const {
    return duration_cast<milliseconds>(file_system_time(file_) - found.written);
}

bool FolderLockAttempt::requeued(const FoundLock& found) const {
    return found.record && request_.job.is_restart_of(found.record->job);
}

FolderLockAttempt::Verdict FolderLockAttempt::judge(const FoundLock& found, std::string& reason) {
    const LockTimes& times = request_.times;
    if (request_.steal) {
        reason = request_.steal_name + " asks for it";
        return Verdict::take;
    }
    if (found.empty) {
        reason = "it was never written";
        return watched() >= times.unwritten ? Verdict::take : Verdict::wait;
    }
    if (requeued(found)) {
        reason = fmt::format("Slurm has started job {} again", request_.job.id);
        return Verdict::take;
    }
    const ProcessFate fate = found.record ? fate_of(found.record->process) : ProcessFate::unknown;
    if (fate == ProcessFate::ended) {
        reason = "that process has ended";
        return Verdict::take;
    }
    if (beats_) return Verdict::refuse;
    const milliseconds old = age(found);
    reason = fmt::format("it had no heartbeat for {}", time_text(std::max(old, watched())));
    if (fate == ProcessFate::running) {
        if (old < times.stale) return watched() >= times.dying ? Verdict::refuse : Verdict::wait;
        // It is alive, but has been suspended for long. A machine that slept is about to continue.
        return watched() >= 2 * times.beat ? Verdict::take : Verdict::wait;
    }
    if (left_to_wait(found) <= milliseconds(0)) return Verdict::take;
    tell_of_wait(found);
    return Verdict::wait;
}

milliseconds FolderLockAttempt::left_to_wait(const FoundLock& found) const {
    const LockTimes& times = request_.times;
    // If the clocks are far apart, a recent heartbeat may look old: two more would be seen.
    const milliseconds by_age = std::max(times.stale - age(found), 2 * times.beat - watched());
    return std::min(by_age, times.stale - watched());
}

void FolderLockAttempt::tell_of_wait(const FoundLock& found) {
    if (std::exchange(told_, true)) return;
    const milliseconds old = std::max(age(found), milliseconds(0));
    say_(
        fmt::format("{} is locked by {}, whose last heartbeat is {} old. If there are no more, this run "
                    "continues in {}; {} does so immediately.",
                    request_.folder.string(), found.holder(), time_text(old), time_text(left_to_wait(found)),
                    request_.steal_name));
}

/// Only the process that creates a lock's mark may remove that lock, and no other lock: what it removed is
/// checked. Then all processes that want the folder create a new lock, or find that there is one.
void FolderLockAttempt::remove_abandoned(const FoundLock& found) const {
    const fs::path mark = take_over_mark(file_, found.identity());
    if (!create_file_exclusively(mark, record_.text())) {
        // Its creator may have died before it finished.
        const std::optional<FoundLock> other = look_at_lock(mark);
        if (other && age(*other) >= request_.times.leftover) unlink(mark.c_str());
        return;
    }
    const std::optional<FoundLock> still = look_at_lock(file_);
    if (still && still->identity() == found.identity()) {
        const fs::path removed = beside_lock(file_, "removed", record_.token);
        if (rename(file_.c_str(), removed.c_str()) == 0) {
            const std::optional<FoundLock> taken = look_at_lock(removed);
            // Its process has just released it, and another has created its own.
            const bool another = taken && taken->identity() != found.identity();
            std::error_code failure;  // that process notices that its file is gone, and creates it again
            if (another) fs::create_hard_link(removed, file_, failure);
            unlink(removed.c_str());
        }
    }
    // A process that may be alive finds the mark at its next check. If the mark is gone too, its own last
    // heartbeat tells it that it was suspended for too long.
    const bool ended = !found.record || fate_of(found.record->process) == ProcessFate::ended;
    if (ended) unlink(mark.c_str());
}

void FolderLockAttempt::refuse(const FoundLock& found) const {
    const bool this_process = found.record && found.record->process == record_.process;
    throw Error(fmt::format("Another run is writing to the folder {}: {}.", request_.folder.string(),
                            this_process ? "one of this process" : found.holder()),
                "Choose another folder, or wait for that run to end; " + request_.steal_name +
                    " takes the folder from it.");
}

}  // namespace drover
