#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace drover {

class Backend;
class Mesh;
struct ModelConfig;
struct TrainEngineOptions;

/// The memory a plan may use.
struct MemoryLimits {
    std::size_t device_bytes;
    std::size_t host_bytes = 0;  ///< in addition, for an offloaded optimizer
};

/// What would make a run fit into `available` when its plan is too large: the smallest change of each kind,
/// as flags of run_clm ("--recompute selective_mlp", "--per_device_train_batch_size 2
/// --gradient_accumulation_steps 8"), or the number of GPUs to shard over when nothing on one device helps.
/// Each suggestion was planned, not estimated. One sentence. `sharing` replicas share the batch given on the
/// command line.
std::string memory_advice(const ModelConfig& config, const TrainEngineOptions& options,
                          std::int64_t accumulation_steps, Backend& backend, const Mesh& mesh,
                          const MemoryLimits& available, std::int64_t sharing = 1);

/// The largest number of rows, up to that of `options`, whose plan fits into `available`; 0 if one row does
/// not.
std::int64_t largest_fitting_rows(const ModelConfig& config, const TrainEngineOptions& options,
                                  Backend& backend, const Mesh& mesh, const MemoryLimits& available);

}  // namespace drover
