#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "core/text_file.h"

extern char** environ;

namespace drover::test {

/// The real binary, running while the test continues; its output goes to a file. `within` is a command that
/// executes the rest of its words, such as `env NAME=value`.
class BackgroundRun {
  public:
    BackgroundRun(const std::string& arguments, const std::filesystem::path& output_file,
                  const std::string& within = {})
        : output_file_(output_file) {
        // Output of an earlier run must not be taken for this one's.
        if (std::filesystem::is_regular_file(output_file)) std::filesystem::remove(output_file);
        const std::string command = "exec " + within + " " + std::string(DROVER_BINARY) + " " + arguments +
                                    " >'" + output_file.string() + "' 2>&1";
        const char* words[] = {"sh", "-c", command.c_str(), nullptr};
        // Signals that the tests themselves ignore, under nohup or with &, would not reach it either.
        sigset_t signals;
        sigemptyset(&signals);
        for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM}) sigaddset(&signals, number);
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setsigdefault(&attributes, &signals);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        if (posix_spawn(&process_, "/bin/sh", nullptr, &attributes, const_cast<char**>(words), environ) != 0)
            process_ = -1;
        posix_spawnattr_destroy(&attributes);
    }
    ~BackgroundRun() {
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            exit_code();
        }
    }
    BackgroundRun(const BackgroundRun&) = delete;
    BackgroundRun& operator=(const BackgroundRun&) = delete;

    pid_t process() const { return process_; }
    void send(int signal_number) const { ::kill(process_, signal_number); }

    /// Waits until it ends: the exit code, or 128 + the signal that ended it.
    int exit_code() {
        int status = 0;
        waitpid(process_, &status, 0);
        process_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    /// Waits until `holds`, the process ends (reaping nothing), or half a minute has passed; returns whether
    /// it holds.
    bool wait_until(const std::function<bool()>& holds) const {
        for (int tries = 0; tries < 30'000; ++tries) {
            if (holds()) return true;
            siginfo_t info{};
            if (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                info.si_pid != 0)
                return holds();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return false;
    }

    /// Its output so far.
    std::string output() const {
        return std::filesystem::exists(output_file_) ? read_text_file(output_file_) : "";
    }

  private:
    std::filesystem::path output_file_;
    pid_t process_ = -1;
};

}  // namespace drover::test
