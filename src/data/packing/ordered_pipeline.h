#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace drover {

/// One thread produces items, several work on them, and the caller gets them back in the order in which they
/// were produced. Items live in a fixed number of reused slots, so memory is bounded and their buffers are
/// kept. An exception in either stage reaches the caller after all items before it. The destructor stops
/// immediately: no new item is produced or started.
template <class Item>
class OrderedPipeline {
  public:
    /// `produce` fills an item (which still has its slot's previous contents) and returns false at the end;
    /// `work` runs on `threads` threads.
    OrderedPipeline(std::size_t threads, std::function<bool(Item&)> produce, std::function<void(Item&)> work)
        : produce_(std::move(produce)), work_(std::move(work)), slots_(2 * threads + 2) {
        threads_.emplace_back([this] { produce_items(); });
        for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work_on_items(); });
    }
    OrderedPipeline(const OrderedPipeline&) = delete;
    OrderedPipeline& operator=(const OrderedPipeline&) = delete;
    ~OrderedPipeline() {
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
        }
        room_.notify_all();
        begun_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    /// The next item, valid until the next call; null at the end. After an exception: null.
    Item* next() {
        std::unique_lock lock(mutex_);
        if (held_) {
            held_ = false;
            slots_[consumed_ % slots_.size()].done = false;
            ++consumed_;
            room_.notify_one();
        }
        done_.wait(lock, [&] {
            return slots_[consumed_ % slots_.size()].done || (ended_ && consumed_ == produced_);
        });
        Slot& slot = slots_[consumed_ % slots_.size()];
        if (!slot.done) {
            if (production_error_) std::rethrow_exception(std::exchange(production_error_, nullptr));
            return nullptr;
        }
        if (slot.error) {
            const std::exception_ptr error = std::exchange(slot.error, nullptr);
            // Items after a failed one are of no use: drain the pipeline.
            stopped_ = ended_ = true;
            slot.done = false;
            produced_ = consumed_;
            room_.notify_all();
            begun_.notify_all();
            std::rethrow_exception(error);
        }
        held_ = true;
        return &slot.item;
    }

  private:
    struct Slot {
        Item item{};
        bool done = false;
        std::exception_ptr error;
    };

    void produce_items() {
        for (std::uint64_t number = 0;; ++number) {
            {
                std::unique_lock lock(mutex_);
                room_.wait(lock, [&] { return stopped_ || number - consumed_ < slots_.size(); });
                if (stopped_) return;
            }
            bool more = false;
            std::exception_ptr error;
            try {
                more = produce_(slots_[number % slots_.size()].item);
            } catch (...) {
                error = std::current_exception();
            }
            const std::lock_guard lock(mutex_);
            if (stopped_) return;
            if (more) {
                ++produced_;
                begun_.notify_one();
            } else {
                production_error_ = error;
                ended_ = true;
                begun_.notify_all();
                done_.notify_all();
                return;
            }
        }
    }

    void work_on_items() {
        std::unique_lock lock(mutex_);
        for (;;) {
            begun_.wait(lock, [&] { return stopped_ || ended_ || taken_ < produced_; });
            if (stopped_ || taken_ >= produced_) return;
            Slot& slot = slots_[taken_++ % slots_.size()];
            lock.unlock();
            std::exception_ptr error;
            try {
                work_(slot.item);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            slot.error = error;
            slot.done = true;
            done_.notify_all();
        }
    }

    std::function<bool(Item&)> produce_;
    std::function<void(Item&)> work_;
    std::mutex mutex_;
    std::condition_variable room_, begun_, done_;
    std::vector<Slot> slots_;
    std::uint64_t produced_ = 0, taken_ = 0, consumed_ = 0;
    bool held_ = false;     ///< the caller uses slot consumed_
    bool ended_ = false;    ///< nothing more will be produced
    bool stopped_ = false;  ///< nothing more is wanted
    std::exception_ptr production_error_;
    std::vector<std::thread> threads_;
};

}  // namespace drover
