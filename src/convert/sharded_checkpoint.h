#pragma once

#include "convert/rank_files.h"

namespace drover {

/// Ranks of each kind of a checkpoint that has a file per rank.
struct ShardSizes {
    std::int64_t tensor = 1, pipeline = 1, experts = 1;

    bool operator==(const ShardSizes&) const = default;
};

/// The place of a rank.
struct ShardRank {
    std::int64_t tensor = 0, pipeline = 0, experts = 0;

    auto operator<=>(const ShardRank&) const = default;
};

/// What every rank of a checkpoint has, by name.
class RankedTensors {
  public:
    virtual ~RankedTensors() = default;

    /// For messages.
    const std::filesystem::path& folder() const { return folder_; }
    const ShardSizes& sizes() const { return sizes_; }
    /// Names of a rank's tensors in the order of its file, and their items.
    const std::vector<std::pair<std::string, std::size_t>>& tensors(const ShardRank& rank) const {
        return ranks_.at(rank);
    }
    virtual const TensorSource::Item& item(std::size_t index) const = 0;

  protected:
    std::filesystem::path folder_;
    ShardSizes sizes_;
    std::map<ShardRank, std::vector<std::pair<std::string, std::size_t>>> ranks_;
};

/// The model of a checkpoint of neuronx-distributed: a folder with a file per rank, named in one of three
/// ways: dp_rank_00_tp_rank_TT_pp_rank_PP.pt, the same with ep_rank_EE after dp_rank_00, or (older)
/// tp_rank_TT_pp_rank_PP/checkpoint.pt.
class ShardedCheckpoint : public RankFiles, public RankedTensors {
  public:
    /// The folder with the files, or one that has them in its folder `model`. Sizes that are absent are
    /// counted. Error when there are no such files, ranks are missing or are more than the sizes say.
    ShardedCheckpoint(const std::filesystem::path& folder, std::optional<std::int64_t> tensor,
                      std::optional<std::int64_t> pipeline, std::optional<std::int64_t> experts,
                      std::string_view model_key);

    const Item& item(std::size_t index) const override { return items()[index]; }
    /// The name of a rank's file below output folders.
    static std::string file_name(const ShardRank& rank, const ShardSizes& sizes);

  private:
    void open_rank(const ShardRank& rank, const std::filesystem::path& file, std::string_view model_key);
};

}  // namespace drover
