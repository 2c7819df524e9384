#pragma once

#include <cstdint>
#include <string>

#include "run/device_mesh.h"
#include "run/processes.h"
#include "train/engine/pipeline_memory.h"

/// How much of its machine a process of a run may use, and how long the run will take.
namespace drover {

class Backend;
class TrainEngine;
struct ModelConfig;
struct RunSettings;
struct TrainEngineOptions;

/// Memory for this process: its share if processes share the memory. All references must outlive this object.
class ProcessLimits {
  public:
    ProcessLimits(const RunSettings& settings, const Processes& processes, Backend& backend,
                  const DeviceMesh& mesh)
        : settings_(settings), processes_(processes), backend_(backend), mesh_(mesh) {}

    /// Device memory for this process, in bytes.
    std::size_t device_bytes() const;
    /// The part of it that the plan may use (memory_fraction).
    std::size_t allowed_bytes() const;
    /// Host memory for writing checkpoints, in addition to a planned engine. Unless it is given: a quarter of
    /// the memory, without what the plan needs.
    std::uint64_t checkpoint_buffer(const TrainEngine& engine) const;

    /// What all processes together can do per second if this one alone, with its threads, can do `own`.
    /// Processors and GPUs that several processes share count once.
    double peak_of_all(double own) const;

    /// Error if the memory planned for any pipeline rank is more than is allowed here. `sharing` replicas
    /// share the batch of the arguments.
    void check(const std::vector<RankMemory>& planned, const ModelConfig& config,
               const TrainEngineOptions& options, std::int64_t accumulation_steps,
               std::int64_t sharing) const;

    /// The largest number of rows, up to that of `options`, with which an engine fits; 0: not even one does.
    std::int64_t fitting_rows(const ModelConfig& config, const TrainEngineOptions& options) const;

  private:
    /// Host memory for this process.
    double host_bytes() const;
    /// The part of it that the plan may use. Such memory is never swapped out, so some is left for other
    /// programs.
    std::size_t allowed_host_bytes() const;
    double fraction() const;

    const RunSettings& settings_;
    const Processes& processes_;
    Backend& backend_;
    const DeviceMesh& mesh_;
};

/// How long the updates take for `tokens` through a model with this many active parameters: six operations
/// per token and parameter, at the rate that a step usually reaches. `peak` is that of all processes, and
/// `bubble` the part of the time in which those of a pipeline are idle.
std::string time_estimate(double tokens, std::int64_t active_parameters, double peak, int processes,
                          double bubble = 0);

/// A hint for the case that other programs load the machine so much that `threads` threads of this one wait
/// for each other. Empty if they do not, and if waiting threads soon sleep, which is the default
/// (process_start.h). Threads that wait in a loop take the processors away from the threads they wait for.
std::string busy_machine_hint(int threads);

}  // namespace drover
