#include "convert/shard_weights.h"

#include <algorithm>

#include "convert/leaf_name.h"
#include "convert/nxd_plan.h"
#include "model/config.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

bool has_rank_files(const fs::path& folder) {
    std::error_code unreadable;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
        const std::string name = entry.path().filename().string();
        if (name.find("tp_rank_") != std::string::npos && name.find("pp_rank_") != std::string::npos)
            return true;
    }
    return false;
}

}  // namespace

bool holds_shards(const fs::path& folder) {
    return has_rank_files(folder) || has_rank_files(folder / "model");
}

std::int64_t kv_multiplier_of(const ShardedCheckpoint& shards, const ModelConfig& config) {
    const std::int64_t ranks = shards.sizes().tensor, kv_rows = config.num_key_value_heads * config.head_dim;
    for (const TensorSource::Item& item : shards.items()) {
        const LeafName leaf(item.name);
        if (leaf.module != "qkv_proj" || item.shape.empty()) continue;
        const std::int64_t rows = item.shape[0] * ranks;
        if (leaf.field == "weight_k") return std::max<std::int64_t>(1, rows / kv_rows);
        if (leaf.field == "weight_qkv")
            return std::max<std::int64_t>(
                1, (rows - config.num_attention_heads * config.head_dim) / (2 * kv_rows));
    }
    return 1;
}

ShardWeights::ShardWeights(const fs::path& folder, const ModelConfig& config)
    : shards_(folder, std::nullopt, std::nullopt, std::nullopt, "model"),
      tensors_(
          shards_,
          model_of_shards(shards_, {.kv_multiplier = kv_multiplier_of(shards_, config), .config = config}),
          shards_.folder().string()) {}

}  // namespace drover
