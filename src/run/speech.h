#pragma once

#include <cstdio>
#include <memory>

#include "args/arguments.h"
#include "run/messages.h"
#include "run/run_processes.h"

namespace drover {

/// Where this process says what it does: standard error for the first one of the run, and of each machine
/// with --log_on_each_node; for the others --rank_log_dir and --log_level_replica, else nowhere.
class Speech {
  public:
    /// Error when the log cannot be opened.
    Speech(const RunProcesses& processes, const Arguments& arguments);

    const Messages& messages() const { return messages_; }
    /// Where records go as they are logged: standard output, this rank's log, or (null) nowhere.
    std::FILE* records() const { return is_first_ ? stdout : log_.get(); }

  private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    using File = std::unique_ptr<std::FILE, Close>;

    static File open_log(const RunProcesses& processes, const Arguments& arguments);
    Messages choose(const RunProcesses& processes, const Arguments& arguments) const;

    bool is_first_;
    File log_;  ///< of this rank; null: none
    Messages messages_;
};

}  // namespace drover
