#include "app/interrupts.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "core/error.h"

namespace drover {

Interrupts::Interrupts() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (event_ < 0) throw Error("No descriptor is free for Ctrl-C.", "Close some files, see ulimit -n.");
    sigemptyset(&watched_);
    sigaddset(&watched_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &watched_, &before_);
    thread_ = std::thread([this] { watch(); });
}

Interrupts::~Interrupts() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGINT);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    close(event_);
}

void Interrupts::watch() {
    for (int number = 0; sigwait(&watched_, &number) == 0 && !done_;) {
        if (records_) {
            const std::uint64_t one = 1;
            if (write(event_, &one, sizeof one) < 0) continue;  // full: thousands are recorded already
        } else {
            pthread_sigmask(SIG_UNBLOCK, &watched_, nullptr);
            raise(SIGINT);  // ends the program unless it was started with SIGINT ignored
            pthread_sigmask(SIG_BLOCK, &watched_, nullptr);
        }
    }
}

bool Interrupts::take() {
    std::uint64_t count = 0;
    return read(event_, &count, sizeof count) > 0;
}

std::optional<std::string> Interrupts::read_line() {
    while (true) {
        if (const auto end = input_.find('\n'); end != std::string::npos) {
            std::string line = input_.substr(0, end);
            input_.erase(0, end + 1);
            return line;
        }
        std::array<pollfd, 2> ready{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{event_, POLLIN, 0}};
        if (poll(ready.data(), ready.size(), -1) < 0) {
            if (errno == EINTR) continue;
            return std::nullopt;
        }
        if (take()) return std::nullopt;
        std::array<char, 4096> bytes;
        const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            if (input_.empty()) return std::nullopt;
            input_ += '\n';  // the last line may lack its end
            continue;
        }
        input_.append(bytes.data(), static_cast<std::size_t>(count));
    }
}

}  // namespace drover
