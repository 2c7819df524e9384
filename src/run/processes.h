#pragma once

#include <functional>
#include <memory>

#include "run/launch_environment.h"
#include "run/machine_place.h"
#include "run/process_group.h"

/// The processes of a run: how they find each other and how they end.
namespace drover {

struct RunSettings;

/// Ends a process without a message: another process reports what happened.
class QuietEnd final : public Error {
  public:
    explicit QuietEnd(int exit_code) : Error("Another process says what happened."), exit_code_(exit_code) {}
    int exit_code() const override { return exit_code_; }

  private:
    int exit_code_;
};

/// This process and the others, while they work together.
struct Processes {
    World* world = nullptr;  ///< null: this process is alone
    ProcessGroup group{};
    MachinePlace machine{};

    bool is_first() const { return group.is_first(); }
    bool alone() const { return world == nullptr; }
};

/// If one process cannot start, usually none can, for the same reason. The first one returns immediately to
/// report it, and the launcher then ends the others (mpirun after a second). Those still alive after a few
/// seconds have a reason of their own.
void let_first_report(const LaunchEnvironment& launch);

/// This process's rank in the world that a launcher started. `waits` sets how long ranks wait for each other.
/// Error if MPI cannot be used, or sees other processes than the launcher reported.
std::unique_ptr<World> begin_world(const LaunchEnvironment& launch, const WorldOptions& waits);

/// The processes of a world, including this one. Collective; the world must outlive the result.
Processes find_processes(World& world);

/// Shows the failure being handled, if this rank is the one to do so; returns the QuietEnd to throw.
QuietEnd show_failure(int rank);

/// Runs the work in this process or, if a launcher started several, in all of them as the ranks of one world.
/// If it fails, one rank shows why, and all throw QuietEnd.
void run_in_processes(const LaunchEnvironment& launch, const WorldOptions& waits,
                      const std::function<void(Processes&)>& work);

/// How long ranks wait for each other, and how their collectives are monitored.
WorldOptions world_options(const RunSettings& settings, const LaunchEnvironment& launch);

/// Error unless all ranks have the same program and the same settings (SettingsRecord::alike), and share the
/// batch in the same way, which may depend on the environment.
void check_started_alike(const Processes& processes, const RunSettings& settings);

}  // namespace drover
