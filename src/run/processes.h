#pragma once

#include <functional>
#include <memory>

#include "run/launch_environment.h"
#include "run/machine_place.h"
#include "run/process_group.h"
#include "run/settings/run_settings.h"

/// The processes of a run: how they find each other, and how they end.
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
struct Processes {
    World* world = nullptr;  ///< null: this process is alone
    ProcessGroup group{};
    MachinePlace machine{};

    bool is_first() const { return group.is_first(); }
    bool alone() const { return world == nullptr; }
};

/// Where one process cannot begin, all of them usually cannot, for the same reason. The first one returns, to
/// say it at once, and the launcher then ends the others (mpirun after a second); those that still live a few
/// seconds later have their own reason.
void let_first_speak(const LaunchEnvironment& launch);

/// This process's rank of the world that a launcher started. `waits` says how long ranks wait for each other.
/// Error where MPI cannot be used, or sees other processes than the launcher named.
std::unique_ptr<World> begin_world(const LaunchEnvironment& launch, const WorldOptions& waits);

/// The processes of a world, this one among them. Collective; the world must outlive what is returned.
Processes find_processes(World& world);

/// Shows the failure that is being handled, if this is the rank to do so; returns how it ends quietly.
QuietEnd show_failure(int rank);

/// Runs the work in this process, or, where a launcher started several, in all of them as the ranks of one
/// world. When several fail, one shows why, and all throw QuietEnd.
void run_in_processes(const LaunchEnvironment& launch, const WorldOptions& waits,
                      const std::function<void(Processes&)>& work);

/// How long ranks wait for each other, and what is watched of their collectives.
WorldOptions world_options(const DeviceSettings& settings, const LaunchEnvironment& launch);

/// Error unless all ranks have the same program and the same settings (SettingsRecord::alike), and take the
/// batch alike, which the environment may decide.
void check_started_alike(const Processes& processes, const RunSettings& settings);

}  // namespace drover
