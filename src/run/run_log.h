#pragma once

#include <cstdio>
#include <memory>

#include "run/messages.h"
#include "run/processes.h"

namespace drover {

struct LogSettings;

/// Where this process logs: standard error for the first process of the run, and of each machine if
/// requested; for the others, their own file or their own level, otherwise nowhere.
class RunLog {
  public:
    /// Error when the log cannot be opened.
    RunLog(const Processes& processes, const LogSettings& settings);

    const Messages& messages() const { return messages_; }
    /// Where records are printed as they are logged: standard output, this rank's log, or (null) nowhere.
    std::FILE* records() const { return is_first_ ? stdout : log_.get(); }

  private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    using File = std::unique_ptr<std::FILE, Close>;

    static File open_log(const Processes& processes, const LogSettings& settings);
    Messages choose(const Processes& processes, const LogSettings& settings) const;

    bool is_first_;
    File log_;  ///< of this rank; null: none
    Messages messages_;
};

}  // namespace drover
