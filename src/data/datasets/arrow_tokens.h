#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace drover {

/// Returns the ids of the next block; empty at the end. They stay valid until the next call.
using NextBlock = std::function<std::span<const std::int32_t>()>;

/// Writes blocks of tokens as the datasets library's save_to_disk would: Arrow stream files with the columns
/// input_ids (int32), attention_mask (int8, all ones) and labels (int64, the ids), state.json and
/// dataset_info.json. A new file begins after `shard_bytes`. Returns the number of blocks. Error when
/// `folder` exists and is not empty, or when Arrow C++ is not available.
std::int64_t write_arrow_token_dataset(const std::filesystem::path& folder, const NextBlock& next,
                                       const std::string& split = "train",
                                       std::int64_t shard_bytes = 500'000'000);

/// Blocks of tokens in the Arrow files of a folder written by save_to_disk, in any order. For one thread at a
/// time.
class ArrowTokenDataset {
  public:
    struct Block {
        std::vector<std::int32_t> ids;
        std::vector<std::int32_t> labels;  ///< empty if the folder has none; no_label for no target
    };

    /// The data files of one split.
    explicit ArrowTokenDataset(const std::vector<std::filesystem::path>& files);
    ~ArrowTokenDataset();

    std::int64_t size() const { return size_; }
    /// Replaces `block` by block `index`. Error for ids that are negative or do not fit 32 bits, for labels
    /// that are neither −100 nor a valid id, and for a block with padding (zeros in attention_mask).
    void read(std::int64_t index, Block& block);

  private:
    struct Shard;
    std::vector<std::unique_ptr<Shard>> shards_;
    std::int64_t size_ = 0;
};

}  // namespace drover
