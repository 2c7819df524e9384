#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <utility>

namespace drover {

/// An open file, socket or pipe, closed with its owner.
class FileDescriptor {
  public:
    FileDescriptor() = default;
    explicit FileDescriptor(int number) : number_(number) {}
    ~FileDescriptor() { close(); }
    FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }

    int number() const { return number_; }
    bool is_open() const { return number_ >= 0; }
    void close();

  private:
    int number_ = -1;
};

/// Waits for several descriptors at once and calls their callbacks, on one thread.
class LaunchLoop {
  public:
    /// `ready` is called by wait() whenever the descriptor can be read or its other side is closed.
    void watch(int descriptor, std::function<void()> ready);
    /// May be called from within a callback.
    void forget(int descriptor);
    /// Waits until something is ready, at most this long, and calls the callbacks concerned.
    void wait(std::chrono::milliseconds at_most);

  private:
    std::map<int, std::function<void()>> watched_;
};

}  // namespace drover
