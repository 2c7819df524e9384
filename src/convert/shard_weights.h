#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/planned_reader.h"
#include "convert/sharded_checkpoint.h"

namespace drover {

struct ModelConfig;

/// Whether a folder, or its folder `model`, has a file per rank as neuronx-distributed writes them.
bool holds_shards(const std::filesystem::path& folder);

/// How often key and value heads are repeated in the ranks' layers of queries, keys and values.
std::int64_t kv_multiplier_of(const ShardedCheckpoint& shards, const ModelConfig& config);

/// The model in such a folder, read one whole tensor at a time. In which form the ranks have it, and how
/// often key and value heads are repeated, is seen from the files and the config.
class ShardWeights {
  public:
    /// Error if the files are not a model of this config.
    ShardWeights(const std::filesystem::path& folder, const ModelConfig& config);

    /// The tensor of that name in Hugging Face's model, as float32. Error if there is none with so many
    /// elements.
    std::vector<float> read(const std::string& name, std::int64_t elements) const {
        return tensors_.read(name, elements);
    }

    const ShardSizes& sizes() const { return shards_.sizes(); }

  private:
    ShardedCheckpoint shards_;
    PlannedReader tensors_;
};

}  // namespace drover
