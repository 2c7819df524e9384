#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "convert/tensor_source.h"
#include "io/torch_pickle.h"

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

/// The model of a checkpoint of neuronx-distributed: a folder with a file per rank, named in one of three
/// ways: dp_rank_00_tp_rank_TT_pp_rank_PP.pt, the same with ep_rank_EE after dp_rank_00, or (older)
/// tp_rank_TT_pp_rank_PP/checkpoint.pt. A file has the tensors itself, or ("xser") references to the files
/// tensor_N.pt of the folder with its name and ".tensors".
class ShardedCheckpoint : public TensorSource {
  public:
    /// The folder with the files, or one that has them in its folder `model`. Sizes that are absent are
    /// counted. Error when there are no such files, ranks are missing or are more than the sizes say.
    ShardedCheckpoint(const std::filesystem::path& folder, std::optional<std::int64_t> tensor,
                      std::optional<std::int64_t> pipeline, std::optional<std::int64_t> experts,
                      std::string_view model_key);
    ~ShardedCheckpoint() override;

    const std::filesystem::path& folder() const { return folder_; }
    const ShardSizes& sizes() const { return sizes_; }
    /// Whether any rank has its tensors in files of their own.
    bool is_xser() const { return is_xser_; }

    /// Names of a rank's tensors in the order of its file, and their items.
    const std::vector<std::pair<std::string, std::size_t>>& tensors(const ShardRank& rank) const {
        return ranks_.at(rank);
    }
    /// The name of a rank's file below output folders.
    static std::string file_name(const ShardRank& rank, const ShardSizes& sizes);

    StridedTensor view(std::size_t item) const override;
    void verify(std::size_t item) const override;
    void forget() const override;
    std::vector<std::filesystem::path> files() const override { return files_; }

  private:
    void open_rank(const ShardRank& rank, const std::filesystem::path& file, std::string_view model_key);

    std::filesystem::path folder_;
    ShardSizes sizes_;
    bool is_xser_ = false;
    std::map<ShardRank, std::vector<std::pair<std::string, std::size_t>>> ranks_;
    std::vector<std::filesystem::path> files_;
    /// Where an item is: a value of a file that is open, or a file of its own.
    struct Place;
    std::vector<Place> places_;
    std::vector<std::unique_ptr<TorchFile>> rank_files_;
    mutable std::map<std::size_t, std::unique_ptr<TorchFile>> tensor_files_;  ///< those in use, by item
};

}  // namespace drover
