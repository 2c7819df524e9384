#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "run/device_mesh.h"
#include "run/processes.h"
#include "run/settings/run_settings.h"
#include "train/engine/train_engine.h"

/// What a process of a run may take of its machine, and how long the run will take.
namespace drover {

/// Memory for this process: its share where processes have the memory in common. All must outlive it.
class ProcessLimits {
  public:
    ProcessLimits(const RunSettings& settings, const Processes& processes, Backend& backend,
                  const DeviceMesh& mesh)
        : settings_(settings), processes_(processes), backend_(backend), mesh_(mesh) {}

    /// Bytes of the device for this process.
    std::size_t device_bytes() const;
    /// Those that the plan may take (memory_fraction).
    std::size_t allowed_bytes() const;
    /// Host memory for checkpoints beside a planned engine. Unless it is given: a quarter of the memory, but
    /// not what the plan needs.
    std::uint64_t checkpoint_buffer(const TrainEngine& engine) const;

    /// What all processes can do per second when this one alone, with its threads, can do `own`: processors
    /// and GPUs that several of them share count once.
    double peak_of_all(double own) const;

    /// Error when a planned engine is larger than it may be. `sharing` replicas share the batch of the
    /// arguments.
    void check(const TrainEngine& engine, const ModelConfig& config, const TrainEngineOptions& options,
               std::int64_t accumulation_steps, std::int64_t sharing) const;

  private:
    /// Of the host, for this process.
    double host_bytes() const;
    /// What the plan may take of it. Such memory is never swapped out, so something is left to everybody
    /// else.
    std::size_t allowed_host_bytes() const;
    double fraction() const { return settings_.device.memory_fraction.value_or(1); }

    const RunSettings& settings_;
    const Processes& processes_;
    Backend& backend_;
    const DeviceMesh& mesh_;
};

/// How long the updates take for `tokens` through a model with so many active parameters: six operations per
/// token and parameter, at the rate that a step usually reaches. `peak` is that of all processes.
std::string time_estimate(double tokens, std::int64_t active_parameters, double peak, int processes);

}  // namespace drover
