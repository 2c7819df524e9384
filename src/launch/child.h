#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/loop.h"

namespace drover {

/// The file that a shell would run for `program`; nothing if there is none.
std::optional<std::filesystem::path> find_program(const std::string& program);

/// A program started by this one. It has its own process group (so the terminal's signals reach it only
/// through this program), default handling of every signal and no input, and it ends when this program is
/// killed.
class LaunchChild {
  public:
    struct Settings {
        std::filesystem::path file;
        std::vector<std::string> words;  ///< the first is its argv[0]
        bool captured = false;           ///< its output can be read from the descriptors below
        int end_signal = 15;             ///< sent to it when this program is killed
        int ignored_signal = 0;          ///< ignored until the program itself handles it; 0: none
        /// Variables as "NAME=value", replacing those of this program.
        std::vector<std::string> variables{};
    };

    /// Error if it cannot be started.
    explicit LaunchChild(const Settings& settings);
    /// Kills it unless it has ended.
    ~LaunchChild();
    LaunchChild(const LaunchChild&) = delete;
    LaunchChild& operator=(const LaunchChild&) = delete;

    FileDescriptor& output() { return output_; }
    FileDescriptor& errors() { return errors_; }
    void signal(int number) const;
    /// The same for its whole process group.
    void signal_group(int number) const;

    /// Its exit status once it has ended; 128 + number if a signal ended it. Does not wait.
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
