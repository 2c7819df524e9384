#include "convert/shard_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "convert/leaf_name.h"
#include "convert/nxd_plan.h"
#include "core/convert.h"
#include "core/error.h"
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

/// How often key and value heads are repeated, from the sizes of a layer of queries, keys and values.
std::int64_t multiplier_of(const ShardedCheckpoint& shards, const ModelConfig& config) {
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

}  // namespace

bool holds_shards(const fs::path& folder) {
    return has_rank_files(folder) || has_rank_files(folder / "model");
}

ShardWeights::ShardWeights(const fs::path& folder, const ModelConfig& config)
    : shards_(folder, std::nullopt, std::nullopt, std::nullopt, "model") {
    for (PlannedTensor& tensor :
         model_of_shards(shards_, {.kv_multiplier = multiplier_of(shards_, config), .config = config})) {
        std::string name = tensor.name;
        tensors_.emplace(std::move(name), std::move(tensor));
    }
}

std::vector<float> ShardWeights::read(const std::string& name, std::int64_t elements) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
        throw Error(fmt::format("{} has no weight {}.", shards_.folder().string(), name),
                    "Check that the config is that of the weights.");
    const PlannedTensor& tensor = found->second;
    const std::int64_t columns = tensor.as_item().columns();
    const std::int64_t count =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    if (count != elements)
        throw Error(fmt::format("{} of {} has {} elements, and by the config it has {}.", name,
                                shards_.folder().string(), count, elements),
                    "Check that the config is that of the weights.");
    std::vector<float> whole(static_cast<std::size_t>(count));
    std::vector<std::byte> copied;
    std::vector<float> converted;
    for (const Block& block : tensor.blocks) {
        StridedTensor source = shards_.view(block.item);
        std::int64_t first = block.row_begin;
        if (block.row_step > 1) source = source.rows_apart(std::exchange(first, 0), block.row_step);
        const DType dtype = shards_.items()[block.item].dtype;
        const std::int64_t rows = block.rows_written(), width = block.columns_written();
        copied.resize(static_cast<std::size_t>(rows * width) * size_of(dtype));
        converted.resize(static_cast<std::size_t>(rows * width));
        (block.transposed ? copy_block_transposed : copy_block)(
            source, first, block.row_count, block.column_begin, block.column_count, copied.data(), width);
        convert_elements(copied.data(), dtype, converted.data(), DType::f32, rows * width);
        for (std::int64_t row = 0; row < rows; ++row)
            std::copy_n(converted.begin() + row * width, width,
                        whole.begin() + (block.to_row + row) * columns + block.to_column);
    }
    shards_.forget();
    return whole;
}

}  // namespace drover
