#include "launch/loop.h"

#include <poll.h>
#include <unistd.h>

#include <vector>

namespace drover {

void FileDescriptor::close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
}

void LaunchLoop::watch(int descriptor, std::function<void()> ready) {
    watched_[descriptor] = std::move(ready);
}

void LaunchLoop::forget(int descriptor) {
    watched_.erase(descriptor);
}

void LaunchLoop::wait(std::chrono::milliseconds at_most) {
    std::vector<pollfd> asked;
    for (const auto& [descriptor, ready] : watched_)
        asked.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    if (poll(asked.data(), asked.size(), static_cast<int>(at_most.count())) <= 0) return;
    for (const pollfd& answer : asked) {
        if (answer.revents == 0) continue;
        const auto found = watched_.find(answer.fd);
        if (found == watched_.end()) continue;              // an earlier callback has closed it
        const std::function<void()> ready = found->second;  // a copy: it may remove itself
        ready();
    }
}

}  // namespace drover
