#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/loop.h"

namespace drover {

/// The file that a shell would run for `program`; nothing when it finds none.
std::optional<std::filesystem::path> find_program(const std::string& program);

/// Another program, started by this one. It has a process group of its own (so the terminal's signals reach
/// it only through this program), every signal at its default, nothing to read, and ends when this program
/// is killed.
class LaunchChild {
  public:
    struct Settings {
        std::filesystem::path file;
        std::vector<std::string> words;  ///< the first is what it sees as its name
        bool captured = false;           ///< its output can be read from the descriptors below
        int end_signal = 15;             ///< what it gets when this program is killed
        int ignored_signal = 0;          ///< has no effect until the program itself sees to it; 0: none
        /// Variables as "NAME=value", instead of those that this program has.
        std::vector<std::string> variables{};
    };

    /// Error when it cannot be started.
    explicit LaunchChild(const Settings& settings);
    /// Kills it unless it has ended.
    ~LaunchChild();
    LaunchChild(const LaunchChild&) = delete;
    LaunchChild& operator=(const LaunchChild&) = delete;

    FileDescriptor& output() { return output_; }
    FileDescriptor& errors() { return errors_; }
    void signal(int number) const;
    /// The same to it and to everything in its group.
    void signal_group(int number) const;

    /// Its exit status once it has ended, 128 + number when a signal did that. Does not wait.
    std::optional<int> status();
    /// The signal that ended it, or 0.
    int ended_by() const { return ended_by_; }

  private:
    pid_t process_ = -1;
    FileDescriptor output_, errors_;
    std::optional<int> status_;
    int ended_by_ = 0;
};

}  // namespace drover
