#pragma once

#include <cstdint>

namespace drover {

struct TrainerSettings;

/// The number of steps of a run, as Hugging Face counts since 4.52: an epoch's last accumulation window may
/// be short. If the length of an epoch is unknown, all updates count as one epoch.
struct StepPlan {
    std::int64_t batches_per_epoch = 0;  ///< micro-batches of a rank
    std::int64_t updates_per_epoch = 0;
    std::int64_t max_steps = 0;         ///< updates of the whole run
    std::int64_t epochs = 0;            ///< begun; the last may be unfinished
    std::int64_t examples = 0;          ///< samples of an epoch
    std::int64_t total_batch_size = 0;  ///< samples of a full step over all ranks
    double trained_samples = 0;         ///< used to compute samples per second

    bool streamed = false;  ///< the data determines where epochs end

    /// Micro-batches of update `update` of an epoch.
    std::int64_t window(std::int64_t update, std::int64_t accumulation) const;
};

/// `batches_per_epoch` and `examples` are 0 if unknown; max_steps must be given then.
StepPlan make_step_plan(const TrainerSettings& settings, std::int64_t batches_per_epoch,
                        std::int64_t examples);

/// The number of updates during which the learning rate rises.
std::int64_t warmup_steps_of(const TrainerSettings& settings, std::int64_t max_steps);

}  // namespace drover
