#pragma once

#include <optional>
#include <string>
#include <vector>

#include "args/arguments.h"

namespace drover {

/// The settings of a --deepspeed configuration. Those that also exist as flags (batch sizes, learning rate,
/// clipping, bf16) are compared with the flags and not repeated here.
struct DeepSpeedSettings {
    int stage = 0;            ///< ZeRO: 0 nothing is sharded, 1 optimizer, 2 also gradients, 3 also weights
    std::string optimizer{};  ///< --optim's name for it; empty: no such block, --optim applies
    std::string schedule{};   ///< --lr_scheduler_type's name for it; empty: no such block, the flag applies
    bool recompute = false;   ///< there is an activation_checkpointing block

    bool fp16 = false;
    bool bf16 = false;
    /// DeepSpeed keeps fp32 weights beside bf16 ones, whatever the model's dtype, unless
    /// bf16.bf16_master_weights_and_grads says otherwise.
    bool bf16_has_master = false;
    double loss_scale = 0;  ///< fp16: a fixed scale; 0: dynamic, with the four below
    std::int64_t initial_scale_power = 16;
    std::int64_t loss_scale_window = 1000;
    std::int64_t hysteresis = 2;
    double min_loss_scale = 1;

    bool offload_optimizer = false;  ///< the optimizer's state is in host memory

    std::vector<std::string> explanations{};
};

/// What a configuration is compared with in addition to the arguments.
struct DeepSpeedRun {
    std::int64_t world_size = 1;
    std::optional<std::int64_t>
        total_steps{};  ///< absent: not known yet; settings that depend on it are not compared
};

/// Reads `config`, filling in "auto" from the arguments. UsageError for unknown keys and for unsupported
/// features; a single UsageError lists all differences between the configuration and the arguments. May be
/// called again when the number of steps is known.
DeepSpeedSettings read_deepspeed_settings(const Json& config, const std::string& where,
                                          const Arguments& arguments, const DeepSpeedRun& run);

}  // namespace drover
