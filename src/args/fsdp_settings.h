#pragma once

#include <optional>
#include <string>
#include <vector>

#include "args/arguments.h"

namespace drover {

/// The settings of --fsdp and --fsdp_config.
struct FsdpSettings {
    enum class Sharding : std::uint8_t {
        full_shard,          ///< weights, gradients and optimizer: ZeRO-3
        shard_grad_op,       ///< gradients and optimizer: ZeRO-2
        no_shard,            ///< nothing: plain data parallelism
        hybrid_shard,        ///< full_shard inside a machine, copies between machines
        hybrid_shard_zero2,  ///< shard_grad_op inside a machine, copies between machines
    };

    Sharding sharding = Sharding::full_shard;
    bool offload = false;  ///< the optimizer's state is in host memory
    bool auto_wrap = false;

    /// Blocks to gather together, by class name; empty: the decoder blocks.
    std::vector<std::string> wrap_classes{};
    std::int64_t min_num_params = 0;
    bool activation_checkpointing = false;  ///< also xla_fsdp_grad_ckpt: recompute whole blocks

    bool xla = false;
    bool xla_fsdp_v2 = false;  ///< the batch given on the command line is global

    /// Whether the next block is gathered while one computes. Only explicit settings count, not Hugging
    /// Face's defaults.
    bool forward_prefetch = true;
    bool backward_prefetch = true;
    bool reshard_after_forward = true;  ///< false: gathered weights are kept until backward
    bool fp32_reduce_scatter = false;   ///< gradients are summed in fp32
    std::string compute_dtype{};        ///< of xla_fsdp_settings; empty: the model's
    std::string buffer_dtype{};         ///< of xla_fsdp_settings; empty: the model's
    bool sharded_state_dict = false;    ///< state_dict_type SHARDED_STATE_DICT

    std::vector<std::string> explanations{};
};

/// The settings of `words` (--fsdp) and `config` (--fsdp_config; null: none), which `where` names in errors.
/// UsageError for unknown words and keys and for contradictions. Without any word there is no sharding, and
/// the config's settings are only explained.
std::optional<FsdpSettings> read_fsdp_settings(const std::vector<std::string>& words, const Json& config,
                                               const std::string& where);

/// The same from --fsdp, --fsdp_config and the two older flags.
std::optional<FsdpSettings> read_fsdp_settings(const Arguments& arguments);

}  // namespace drover
