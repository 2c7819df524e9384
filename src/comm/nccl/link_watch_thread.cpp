// The watching thread of LinkWatch, and its findings.

#include <fmt/format.h>

#include <algorithm>

#include "comm/nccl/link_watch.h"

namespace drover {

using namespace std::chrono_literals;

void LinkWatch::run() {
    try {
        gpu_.use_on_this_thread();
    } catch (...) {
        break_off(std::current_exception());
    }
    std::unique_lock lock(mutex_);
    while (!ending_) {
        if (under_way_ == 0 || broken_)
            wake_.wait(lock, [&] { return ending_ || (under_way_ > 0 && !broken_); });
        else
            wake_.wait_for(lock, watch_period, [&] { return ending_; });
        if (ending_ || broken_) continue;
        lock.unlock();
        try {
            look();
        } catch (...) {
            break_off(std::current_exception());
        }
        lock.lock();
    }
}

void LinkWatch::look() {
    world_.check();
    std::optional<Suspect> suspect;
    try {
        const std::lock_guard lock(mutex_);
        for (WatchedLink* link : links_) look_at(*link, suspect);
        times_.collect_waits();
    } catch (const Error&) {
        await_failure_message();
        throw;
    }
    if (suspect) throw_timeout(*suspect);
}

/// With the mutex held.
void LinkWatch::retire_passed(WatchedLink& link) {
    while (!link.under_way.empty() && gpu_.passed(link.under_way.front()->done)) {
        LinkOperation& passed = *link.under_way.front();
        link.under_way.pop_front();
        --under_way_;
        times_.add(passed);
        link.progress.begun = std::max(link.progress.begun, passed.last_call);
        passed.state = LinkOperation::State::passed;
        recycle(passed);
    }
}

/// With the mutex held.
void LinkWatch::look_at(WatchedLink& link, std::optional<Suspect>& suspect) {
    {
        const std::unique_lock lock(link.using_gpu, std::try_to_lock);
        if (lock && !link.aborted && link.gpu != nullptr) static_cast<void>(link.gpu->settled());
    }
    retire_passed(link);
    if (link.under_way.empty()) return;
    LinkOperation& oldest = *link.under_way.front();
    if (!oldest.has_begun && gpu_.passed(oldest.began)) {
        oldest.has_begun = true;
        oldest.began_at = Clock::now();
        link.progress.begun = oldest.last_call;
    }
    const auto waited = Clock::now() - oldest.began_at;
    if (oldest.has_begun && waited >= world_.options().deadline && !suspect)
        suspect = suspect_of(link, oldest, oldest.last_call, waited);
}

LinkWatch::Suspect LinkWatch::suspect_of(const WatchedLink& link, const LinkOperation& operation,
                                         std::int64_t call, Clock::duration waited) const {
    Suspect suspect{.key = link.key,
                    .call = call,
                    .kind = operation.calls.empty() ? CollectiveKind::barrier : operation.calls.front().kind,
                    .text = operation.text(),
                    .waited = waited};
    for (const int rank : link.ranks)
        if (rank != world_.rank()) suspect.ranks.push_back(rank);
    return suspect;
}

void LinkWatch::throw_timeout(const Suspect& suspect) {
    throw Error(
        fmt::format("Rank {} waited {:.1f} s in {}; {}.", world_.rank(),
                    std::chrono::duration<double>(suspect.waited).count(), suspect.text, missing(suspect)),
        "Look for the reason in the output of these ranks; if they are only slow, allow a longer wait.");
}

/// As text: which ranks have not reached the operation that this one waits in.
std::string LinkWatch::missing(const Suspect& suspect) {
    const auto patience = std::clamp<std::chrono::milliseconds>(world_.options().deadline / 4, 200ms, 2000ms);
    const std::map<int, LinkProgress> answers = notes_.ask(suspect.key, suspect.ranks, patience);
    // A rank that timed out a moment earlier has asked all ranks and reported the result; then no rank
    // answers any more.
    if (answers.size() < suspect.ranks.size()) world_.check();
    std::vector<int> absent, waiting;
    for (const int rank : suspect.ranks) {
        const auto answer = answers.find(rank);
        if (answer == answers.end() || answer->second.started < suspect.call)
            absent.push_back(rank);
        else if (answer->second.begun < suspect.call)
            waiting.push_back(rank);
    }
    if (!absent.empty())
        return suspect.kind == CollectiveKind::send
                   ? fmt::format("{} received nothing", ranks_text(absent))
                   : fmt::format("received nothing from {}", ranks_text(absent));
    if (!waiting.empty()) return fmt::format("the GPU of {} has not reached it", ranks_text(waiting));
    return "all of its ranks have reached it, but their GPUs cannot reach each other";
}

LinkProgress LinkWatch::progress_of(std::int64_t key) {
    const std::lock_guard lock(mutex_);
    for (const WatchedLink* link : links_)
        if (link->key == key) return link->progress;
    return {};
}

}  // namespace drover
