#include "comm/nccl/link_watch.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/content_hash.h"

namespace drover {
namespace {

using namespace std::chrono_literals;

/// When NCCL loses another rank, its own error message is worth waiting for.
constexpr auto failure_message_timeout = 3s;

/// An existing connection takes some microseconds, a new one some tenths of a second.
void pause_after(LinkOperation::Clock::duration waited) {
    if (waited < 200us)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(waited < 20ms ? 50us : 1000us);
}

std::int64_t key_of(const LinkId& id) {
    const auto digest =
        ContentHash().add_bytes({reinterpret_cast<const char*>(id.data()), id.size()}).digest();
    std::int64_t key = 0;
    std::memcpy(&key, digest.data(), sizeof key);
    return key;
}

double seconds(LinkOperation::Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace

std::string LinkOperation::text() const {
    if (calls.empty()) return fmt::format("an operation on axis {}", group->axis);
    const std::string first = operation_text(*group, calls.front(), number);
    return calls.size() == 1 ? first : fmt::format("{} and {} more", first, calls.size() - 1);
}

LinkWatch::LinkWatch(World& world, GpuLinks& gpu)
    : world_(world),
      gpu_(gpu),
      times_(gpu, world.options().gpu_times),
      notes_(world, [this](std::int64_t key) { return progress_of(key); }) {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "drover-links");
}

LinkWatch::~LinkWatch() {
    {
        const std::lock_guard lock(mutex_);
        require(links_.empty(), "links outlive their watch");
        ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
    for (const auto& operation : operations_)
        for (const GpuEvent event : {operation->ready, operation->began, operation->done})
            gpu_.free_event(event);
}

// ---------------------------------------------------------------------------------------------------------
// failure

void LinkWatch::throw_broken() const {
    if (broken_->failed_peer >= 0) throw PeerFailure(broken_->failed_peer, broken_->cause);
    throw Error(broken_->cause, broken_->remedy);
}

void LinkWatch::check() {
    {
        const std::lock_guard lock(mutex_);
        if (broken_) throw_broken();
    }
    try {
        world_.check();
    } catch (...) {
        break_off(std::current_exception());
        throw;
    }
}

LinkWatch::Broken LinkWatch::reason_of(const std::exception_ptr& thrown, std::string& tell) noexcept {
    try {
        std::rethrow_exception(thrown);
    } catch (const PeerFailure& failure) {
        return {failure.cause(), {}, failure.rank()};
    } catch (const Error& error) {
        tell = error.what();
        return {error.cause(), error.remedy()};
    } catch (const std::exception& error) {
        tell = error.what();
        return {fmt::format("Communication failed: {}.", error.what()), {}};
    } catch (...) {
        tell = "communication failed.";
        return {"Communication failed.", {}};
    }
}

void LinkWatch::break_off(std::exception_ptr thrown) noexcept {
    std::string tell;
    Broken broken = reason_of(thrown, tell);
    break_down(std::move(broken), tell);
}

void LinkWatch::fail(const std::string& reason) noexcept {
    break_down({fmt::format("This rank failed before: {}", reason), {}}, reason);
}

void LinkWatch::abandon() noexcept {
    break_down({"Communication was aborted because of an error.", {}}, {});
}

/// Sets the reason before the GPU continues, because check_unbroken() is called after a wait for it.
void LinkWatch::break_down(Broken broken, std::string_view tell) noexcept {
    {
        std::unique_lock lock(mutex_);
        if (broken_) {
            changed_.wait(lock, [&] { return aborted_; });
            return;
        }
        broken_ = std::move(broken);
    }
    changed_.notify_all();
    if (!tell.empty()) world_.fail(tell);
    abort_links();
    {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
    }
    changed_.notify_all();
}

/// All at once: the end of one may wait for the whole GPU, and so for the others.
void LinkWatch::abort_links() noexcept {
    std::vector<WatchedLink*> links;
    {
        const std::lock_guard lock(mutex_);
        links = links_;
    }
    std::vector<std::thread> threads;
    for (WatchedLink* link : links)
        threads.emplace_back([this, link]() noexcept {
            try {
                gpu_.use_on_this_thread();
            } catch (...) {
                // The GPU itself has failed, and nothing runs on it any more.
            }
            const std::lock_guard lock(link->using_gpu);
            if (link->gpu != nullptr) link->gpu->abort();
            link->aborted = true;
        });
    for (std::thread& thread : threads) thread.join();
}

// ---------------------------------------------------------------------------------------------------------
// links and operations

/// Calls use(gpu) unless the link has been aborted.
template <class Use>
auto LinkWatch::use(WatchedLink& link, const Use& use) {
    std::exception_ptr failure;
    {
        const std::lock_guard lock(link.using_gpu);
        if (link.aborted) {
            const std::lock_guard broken(mutex_);
            throw_broken();
        }
        try {
            return use(*link.gpu);
        } catch (const Error&) {
            failure = std::current_exception();
        }
    }
    await_failure_message();
    std::rethrow_exception(failure);
}

/// A failing rank breaks its links, and its own message is the better reason: waits for that message and
/// throws it.
void LinkWatch::await_failure_message() {
    for (const auto begin = Clock::now(); Clock::now() - begin < failure_message_timeout;
         std::this_thread::sleep_for(watch_period))
        world_.check();
}

void LinkWatch::settle(WatchedLink& link, const std::function<void(Clock::duration)>& too_late) {
    const auto begin = Clock::now();
    while (!use(link, [](GpuLink& gpu) { return gpu.settled(); })) {
        const auto waited = Clock::now() - begin;
        if (waited >= world_.options().deadline) too_late(waited);
        pause_after(waited);
        check();
    }
}

void LinkWatch::connect(WatchedLink& link, const LinkId& id, const std::function<std::string()>& what) {
    check();
    link.key = key_of(id);
    {
        const std::lock_guard lock(mutex_);
        links_.push_back(&link);
    }
    try {
        {
            const std::lock_guard lock(link.using_gpu);
            if (!link.aborted) link.gpu = gpu_.join(id, static_cast<int>(link.ranks.size()), link.rank);
        }
        settle(link, [&](Clock::duration waited) {
            throw Error(
                fmt::format("Rank {} waited {:.1f} s for {} to be connected.",
                            link.ranks[static_cast<std::size_t>(link.rank)], seconds(waited), what()),
                "Look for the reason in the output of the others; NCCL_DEBUG=INFO shows how far it got.");
        });
    } catch (...) {
        break_off(std::current_exception());
        throw;
    }
}

void LinkWatch::remove(WatchedLink& link) noexcept {
    bool ended = false;
    try {
        check();
        for (;;) {
            LinkOperation* last = nullptr;
            {
                const std::lock_guard lock(mutex_);
                if (link.under_way.empty()) break;
                last = link.under_way.back();
                ++last->holders;
            }
            wait_passed(*last);
            release(*last);
            check();
            std::this_thread::sleep_for(1ms);  // until the watching thread has seen it
        }
        use(link, [](GpuLink& gpu) { gpu.finish(); });
        settle(link, [](Clock::duration) { throw Error("A link did not end."); });
        ended = true;
    } catch (...) {
        // It is not needed any more.
    }
    {
        std::unique_lock lock(mutex_);
        if (broken_) changed_.wait(lock, [&] { return aborted_; });
        std::erase(links_, &link);
    }
    const std::lock_guard lock(link.using_gpu);
    if (!ended && !link.aborted && link.gpu != nullptr) link.gpu->abort();
    link.aborted = true;
    link.gpu.reset();
}

LinkOperation* LinkWatch::take(const Group& group, std::int64_t number) {
    const std::lock_guard lock(mutex_);
    if (broken_) throw_broken();
    if (free_.empty()) {
        auto made = std::make_unique<LinkOperation>();
        made->ready = gpu_.make_event();
        made->began = times_.make_event();
        made->done = times_.make_event();
        operations_.push_back(std::move(made));
        free_.reserve(operations_.size());
        free_.push_back(operations_.back().get());
    }
    LinkOperation* operation = free_.back();
    free_.pop_back();
    operation->group = &group;
    operation->number = number;
    operation->calls.clear();
    operation->counts.clear();
    operation->peer_on_link.reset();
    operation->state = LinkOperation::State::waiting;
    operation->holders = 1;
    operation->has_begun = false;
    operation->has_held_stream = false;
    return operation;
}

/// With the mutex held.
void LinkWatch::recycle(LinkOperation& operation) {
    const bool done =
        operation.state == LinkOperation::State::passed || operation.state == LinkOperation::State::cancelled;
    if (operation.holders == 0 && done) free_.push_back(&operation);
}

void LinkWatch::hold(LinkOperation& operation) {
    const std::lock_guard lock(mutex_);
    ++operation.holders;
}

void LinkWatch::release(LinkOperation& operation) noexcept {
    const std::lock_guard lock(mutex_);
    --operation.holders;
    recycle(operation);
}

void LinkWatch::cancel(LinkOperation& operation) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (operation.state == LinkOperation::State::waiting) {
            operation.state = LinkOperation::State::cancelled;
            recycle(operation);
        }
    }
    changed_.notify_all();
}

void LinkWatch::enqueue(WatchedLink& link, LinkOperation& operation) {
    const auto count = static_cast<std::int64_t>(operation.calls.size());
    try {
        {
            // The other ranks may ask for this rank's progress.
            const std::lock_guard lock(mutex_);
            operation.last_call = link.progress.started += count;
        }
        use(link, [&](GpuLink& gpu) {
            gpu.follow(operation.ready);
            gpu.record(operation.began);
            if (!operation.peer_on_link) return gpu.enqueue(operation.calls);
            CollectiveCall message = operation.calls.front();
            message.peer = *operation.peer_on_link;
            gpu.enqueue({&message, 1});
        });
        settle(link, [&](Clock::duration waited) {
            throw_timeout(suspect_of(link, operation, operation.last_call, waited));
        });
        use(link, [&](GpuLink& gpu) { gpu.record(operation.done); });
    } catch (...) {
        break_off(std::current_exception());
        cancel(operation);
        const std::lock_guard lock(mutex_);
        throw_broken();
    }
    {
        const std::lock_guard lock(mutex_);
        operation.state = LinkOperation::State::enqueued;
        link.under_way.push_back(&operation);
        if (under_way_++ == 0) wake_.notify_one();
    }
    changed_.notify_all();
}

void LinkWatch::follow(WatchedLink& link, LinkOperation& operation) {
    wait_enqueued(operation);
    use(link, [&](GpuLink& gpu) { gpu.follow(operation.done); });
}

void LinkWatch::wait_ready(LinkOperation& operation) {
    const auto begin = Clock::now();
    while (!gpu_.passed(operation.ready)) {
        check();
        // A pipeline's next rank waits for this moment.
        if (Clock::now() - begin < 200us)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(50us);
    }
}

void LinkWatch::wait_enqueued(LinkOperation& operation) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return broken_ || operation.state != LinkOperation::State::waiting; });
    if (broken_) throw_broken();
}

CommunicationTimes LinkWatch::times() {
    for (const auto begin = Clock::now();;) {
        check();
        {
            const std::lock_guard lock(mutex_);
            for (WatchedLink* link : links_) retire_passed(*link);
            if (times_.collect_waits() && under_way_ == 0) return times_.sums();
        }
        pause_after(Clock::now() - begin);
    }
}

void LinkWatch::observe(CollectiveObserver* observer, Stream stream, UnderWay under_way) {
    try {
        if (under_way == UnderWay::told) static_cast<void>(times());
    } catch (...) {
        times_.observe(nullptr, stream);  // the old observer may not live on
        throw;
    }
    times_.observe(observer, stream);
}

bool LinkWatch::has_passed(LinkOperation& operation) noexcept {
    try {
        {
            const std::lock_guard lock(mutex_);
            if (operation.state != LinkOperation::State::enqueued)
                return operation.state != LinkOperation::State::waiting;
        }
        return gpu_.passed(operation.done);
    } catch (const Error&) {
        return false;
    }
}

void LinkWatch::wait_passed(LinkOperation& operation) noexcept {
    const auto begin = Clock::now();
    try {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return aborted_ || operation.state != LinkOperation::State::waiting; });
        while (!aborted_ && operation.state == LinkOperation::State::enqueued) {
            lock.unlock();
            if (gpu_.passed(operation.done)) return;
            pause_after(Clock::now() - begin);
            lock.lock();
        }
    } catch (...) {
        break_off(std::current_exception());
    }
}

}  // namespace drover
