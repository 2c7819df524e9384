#pragma once

#include "convert/conversion_plan.h"
#include "convert/kv_slots.h"
#include "convert/sharded_checkpoint.h"

namespace drover {

/// How a model is cut for neuronx-distributed.
struct NxdSettings {
    ShardSizes sizes;
    std::int64_t virtual_pipeline = 1;
    bool qkv_linear = false;    ///< q, k and v are one layer: qkv_proj.weight_q, weight_k, weight_v
    bool fuse_qkv = false;      ///< with qkv_linear: one tensor, weight_qkv
    bool coalesce_qkv = false;  ///< one tensor of q, k and v of equal size: qkv_proj.weight
    /// Megatron's names; q, k and v are one matrix, or with qkv_linear q alone and k and v together, and
    /// heads are never repeated. When shards are read, seen from their names.
    bool megatron = false;
    std::int64_t kv_multiplier = 1;
    std::optional<KvSlots::Order>
        order;                          ///< absent: interleaved; when shards are read, found from their data
    bool xser = false;                  ///< a file per tensor
    std::optional<DType> dtype;         ///< of floating tensors; absent: their own
    std::optional<ModelConfig> config;  ///< needed where heads are reordered or told apart
};

/// A full model as a file per rank, in the folder `model`. Error when something cannot be cut, heads cannot
/// be told apart without a config, or the config does not fit.
ConversionPlan plan_shards_of_model(const FullCheckpoint& model, const NxdSettings& settings);

/// The tensors of the full model that the ranks hold, under Hugging Face's names. Which of the settings that
/// name tensors apply is seen from the names in the files.
std::vector<PlannedTensor> model_of_shards(const ShardedCheckpoint& shards, const NxdSettings& settings);

/// The same of tensors that are not looked at: `settings.order` says in which order heads are repeated.
std::vector<PlannedTensor> model_of_ranks(const RankedTensors& ranks, const NxdSettings& settings);

/// The order of repeated heads, seen from the weights; nothing if there are none, and none is set.
std::optional<KvSlots::Order> kv_order_of_shards(const ShardedCheckpoint& shards,
                                                 const NxdSettings& settings);

/// The same ranks with their tensors in the other form, in the folder `model`.
ConversionPlan plan_same_shards(const ShardedCheckpoint& shards, const NxdSettings& settings);

}  // namespace drover
