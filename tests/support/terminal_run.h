#pragma once

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace drover::test {

/// The real binary on a terminal of its own, as a user sits before it.
class TerminalRun {
  public:
    explicit TerminalRun(const std::string& arguments) {
        const std::string command = "exec " + std::string(DROVER_BINARY) + " " + arguments;
        process_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
        if (process_ == 0) {
            signal(SIGINT, SIG_DFL);  // the tests may run with it ignored
            execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
            _exit(127);
        }
    }
    ~TerminalRun() {
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            exit_code();
        }
        if (terminal_ >= 0) close(terminal_);
    }
    TerminalRun(const TerminalRun&) = delete;
    TerminalRun& operator=(const TerminalRun&) = delete;

    /// Types what it is given; \x03 is Ctrl-C, \x04 Ctrl-D.
    void type(const std::string& text) {
        if (write(terminal_, text.data(), text.size()) < 0) output_ += "(nothing can be typed)";
    }

    /// Waits until `text` is shown after what was waited for last; false if the program ends or shows nothing
    /// for half a minute. The output up to there is in seen().
    bool wait_for(const std::string& text) {
        while (true) {
            if (const auto found = output_.find(text, seen_); found != std::string::npos) {
                last_ = output_.substr(seen_, found - seen_);
                seen_ = found + text.size();
                return true;
            }
            if (!read_more()) return false;
        }
    }
    /// What was shown between the last two texts that were waited for.
    const std::string& seen() const { return last_; }
    /// Everything that was shown.
    const std::string& output() const { return output_; }

    /// Waits until it ends: the exit code, or 128 + the signal that ended it.
    int exit_code() {
        while (read_more()) {
        }
        int status = 0;
        waitpid(process_, &status, 0);
        process_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

  private:
    bool read_more() {
        pollfd ready{terminal_, POLLIN, 0};
        constexpr int half_a_minute = 30'000;
        if (poll(&ready, 1, half_a_minute) <= 0) return false;
        char bytes[4096];
        const ssize_t count = read(terminal_, bytes, sizeof bytes);
        if (count <= 0) return false;  // Linux reports the end of the other side as an error
        output_.append(bytes, static_cast<std::size_t>(count));
        return true;
    }

    int terminal_ = -1;
    pid_t process_ = -1;
    std::size_t seen_ = 0;
    std::string output_, last_;
};

}  // namespace drover::test
