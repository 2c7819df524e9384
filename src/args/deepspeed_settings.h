#pragma once

#include <optional>
#include <string>
#include <vector>

#include "args/arguments.h"

namespace drover {

/// What a --deepspeed configuration asks for. What it shares with flags (batch sizes, learning rate,
/// clipping, bf16) is compared with them and not repeated here.
struct DeepSpeedSettings {
    int stage = 0;            ///< ZeRO: 0 nothing is sharded, 1 optimizer, 2 also gradients, 3 also weights
    std::string optimizer{};  ///< as --optim calls it; empty: no block, --optim counts
    std::string schedule{};   ///< as --lr_scheduler_type calls it; empty: no block, the flag counts
    bool recompute = false;   ///< an activation_checkpointing block is there

    bool fp16 = false;
    bool bf16 = false;
    /// DeepSpeed keeps fp32 weights beside bf16 ones, whatever type the model has, unless
    /// bf16.bf16_master_weights_and_grads says otherwise.
    bool bf16_has_master = false;
    double loss_scale = 0;  ///< fp16: a fixed scale; 0: dynamic, with the four below
    std::int64_t initial_scale_power = 16;
    std::int64_t loss_scale_window = 1000;
    std::int64_t hysteresis = 2;
    double min_loss_scale = 1;

    bool offload_optimizer = false;  ///< the optimizer's state lies in the host's memory

    std::vector<std::string> explanations{};
};

/// What a configuration is compared with besides the arguments.
struct DeepSpeedRun {
    std::int64_t world_size = 1;
    std::optional<std::int64_t>
        total_steps{};  ///< absent: not known yet, and what depends on it is not compared
};

/// Reads `config`, filling "auto" from the arguments. UsageError for unknown keys and for what is not
/// available here; one UsageError that lists everything in which the configuration and the arguments
/// disagree. May be called again when the number of steps is known.
DeepSpeedSettings read_deepspeed_settings(const Json& config, const std::string& where,
                                          const Arguments& arguments, const DeepSpeedRun& run);

}  // namespace drover
