#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "api/launch_environment.h"
#include "api/machine_place.h"
#include "api/run_ranks.h"
#include "app/messages.h"
#include "args/parse_arguments.h"

/// The processes of a run of `drover run_clm`: how they find each other, and which of them speaks.
namespace drover {

/// The end of a process that has nothing to say: another one says what happened.
class QuietEnd final : public Error {
  public:
    explicit QuietEnd(int exit_code) : Error("Another process says what happened."), exit_code_(exit_code) {}
    int exit_code() const override { return exit_code_; }

  private:
    int exit_code_;
};

/// This process and the others, while they work together.
struct RunProcesses {
    World* world = nullptr;  ///< null: this process is alone
    RunRanks ranks{};
    MachinePlace machine{};

    bool is_first() const { return ranks.is_first(); }
    bool alone() const { return world == nullptr; }
};

/// Runs the work in this process, or, where a launcher started several, in all of them as the ranks of one
/// world. `waits` says how long they wait for each other. When several fail, one shows why, and all throw
/// QuietEnd.
void run_in_processes(const LaunchEnvironment& launch, const WorldOptions& waits,
                      const std::function<void(RunProcesses&)>& work);

/// --ddp_timeout and --comm_debug.
WorldOptions world_options(const Arguments& arguments, const LaunchEnvironment& launch);

/// Error unless all ranks have the same program and the same arguments, but for those that may differ, and
/// take the batch alike, which the environment may decide.
void check_started_alike(const RunProcesses& processes, const RunArguments& run);

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
