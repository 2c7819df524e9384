#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/host_spans.h"

namespace drover {

/// Makes items on its own thread, at most `capacity` ahead of the consumer. An exception reaches the consumer
/// after all items made before it. The destructor waits only for the item that is being made.
template <class Item>
class Prefetcher {
  public:
    /// `make` returns nothing at the end; it runs on the prefetcher's thread only.
    Prefetcher(std::size_t capacity, std::function<std::optional<Item>()> make)
        : capacity_(capacity), make_(std::move(make)), thread_([this, rank = HostThread::rank()] {
              const HostThread here(rank, "data loading");
              run();
          }) {}
    Prefetcher(const Prefetcher&) = delete;
    Prefetcher& operator=(const Prefetcher&) = delete;
    ~Prefetcher() {
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
        }
        room_.notify_all();
        thread_.join();
    }

    /// Waits for the next item; nothing at the end and after an exception.
    std::optional<Item> next() {
        std::unique_lock lock(mutex_);
        made_.wait(lock, [&] { return !items_.empty() || ended_; });
        if (items_.empty()) {
            if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
            return std::nullopt;
        }
        std::optional<Item> item(std::move(items_.front()));
        items_.pop_front();
        room_.notify_one();
        return item;
    }

  private:
    void run() {
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                room_.wait(lock, [&] { return stopped_ || items_.size() < capacity_; });
                if (stopped_) return;
            }
            std::exception_ptr error;
            std::optional<Item> item = make_or_fail(error);
            const std::lock_guard lock(mutex_);
            if (item) {
                items_.push_back(std::move(*item));
            } else {
                error_ = error;
                ended_ = true;
            }
            made_.notify_one();
            if (ended_) return;
        }
    }

    std::optional<Item> make_or_fail(std::exception_ptr& error) {
        const HostSpan span("batch");
        try {
            return make_();
        } catch (...) {
            error = std::current_exception();
            return std::nullopt;
        }
    }

    std::size_t capacity_;
    std::function<std::optional<Item>()> make_;
    std::mutex mutex_;
    std::condition_variable room_, made_;
    std::deque<Item> items_;
    bool ended_ = false, stopped_ = false;
    std::exception_ptr error_;
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace drover
