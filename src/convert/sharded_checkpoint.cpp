#include "convert/sharded_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "convert/rank_name.h"
#include "core/error.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using safetensors_detail::quoted_name;

constexpr std::string_view shard_remedy = "Check --input_dir: all files of the checkpoint must be there.";

/// The rank whose file or folder has this name.
std::optional<ShardRank> rank_of(std::string_view name) {
    ShardRank rank;
    if (const auto data = take_rank(name, "dp"); data && *data != 0) return std::nullopt;
    if (const auto experts = take_rank(name, "ep")) rank.experts = *experts;
    const auto tensor = take_rank(name, "tp");
    const auto pipeline = take_rank(name, "pp");
    if (!tensor || !pipeline || (!name.empty() && name != ".pt")) return std::nullopt;
    rank.tensor = *tensor;
    rank.pipeline = *pipeline;
    return rank;
}

std::map<ShardRank, fs::path> find_ranks(const fs::path& folder) {
    std::map<ShardRank, fs::path> files;
    std::error_code failure;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
        const std::optional<ShardRank> rank = rank_of(entry.path().filename().string());
        if (!rank) continue;
        const fs::path file = entry.is_directory() ? entry.path() / "checkpoint.pt" : entry.path();
        if (!fs::exists(file)) continue;
        if (!files.emplace(*rank, file).second)
            throw Error(fmt::format("{} has two files of one rank, {} and {}.", folder.string(),
                                    files.at(*rank).string(), file.string()),
                        "Remove the one that does not belong to the checkpoint.");
    }
    return files;
}

std::string rank_text(const ShardRank& rank) {
    return fmt::format("tensor rank {}, pipeline rank {}{}", rank.tensor, rank.pipeline,
                       rank.experts > 0 ? fmt::format(", expert rank {}", rank.experts) : "");
}

void check_size(std::string_view flag, std::optional<std::int64_t> wanted, std::int64_t found,
                const fs::path& folder) {
    if (wanted && *wanted != found)
        throw Error(fmt::format("--{} is {}, but the files in {} are of {} such ranks.", flag, *wanted,
                                folder.string(), found),
                    "Give the sizes with which the checkpoint was saved, or leave the flag out.");
}

}  // namespace

ShardedCheckpoint::ShardedCheckpoint(const fs::path& folder, std::optional<std::int64_t> tensor,
                                     std::optional<std::int64_t> pipeline,
                                     std::optional<std::int64_t> experts, std::string_view model_key) {
    folder_ = folder;
    std::map<ShardRank, fs::path> found = find_ranks(folder_);
    if (found.empty()) found = find_ranks(folder_ = folder / "model");
    if (found.empty())
        throw Error(fmt::format("{} has no files of ranks, such as dp_rank_00_tp_rank_00_pp_rank_00.pt.",
                                folder.string()),
                    "Name the folder that holds them (…/step_N/model), or convert from a full model.");
    for (const auto& [rank, file] : found)
        sizes_ = {.tensor = std::max(sizes_.tensor, rank.tensor + 1),
                  .pipeline = std::max(sizes_.pipeline, rank.pipeline + 1),
                  .experts = std::max(sizes_.experts, rank.experts + 1)};
    check_size("tp_size", tensor, sizes_.tensor, folder_);
    check_size("pp_size", pipeline, sizes_.pipeline, folder_);
    check_size("ep_size", experts, sizes_.experts, folder_);
    ShardRank rank;
    for (rank.tensor = 0; rank.tensor < sizes_.tensor; ++rank.tensor)
        for (rank.pipeline = 0; rank.pipeline < sizes_.pipeline; ++rank.pipeline)
            for (rank.experts = 0; rank.experts < sizes_.experts; ++rank.experts) {
                const auto file = found.find(rank);
                if (file == found.end())
                    throw Error(fmt::format("{} has no file for {}.", folder_.string(), rank_text(rank)),
                                shard_remedy);
                open_rank(rank, file->second, model_key);
            }
}

void ShardedCheckpoint::open_rank(const ShardRank& rank, const fs::path& file, std::string_view model_key) {
    PickleValue dict = open(file).root();
    if (dict.kind() == PickleValue::Kind::dict && !model_key.empty() && dict.contains(model_key))
        dict = dict[model_key];
    if (dict.kind() != PickleValue::Kind::dict)
        throw Error(
            fmt::format("{} holds {} instead of a dict of tensors.", file.string(), name_of(dict.kind())),
            "Name the folder with the model's files, not the optimizer's.");
    auto& tensors = ranks_[rank];
    for (std::size_t i = 0; i < dict.size(); ++i) {
        const std::string name(dict.key(i).text());
        const PickleValue value = dict.value(i);
        if (!is_tensor(value))
            throw Error(fmt::format("{}: its entry {} is {} instead of a tensor.", file.string(),
                                    quoted_name(name), name_of(value.kind())),
                        "Name the folder with the model's files, not the optimizer's.");
        // Expert ranks but the first have only experts of their own.
        if (const auto item = add_tensor(name, value, file, rank.experts > 0))
            tensors.emplace_back(name, *item);
    }
}

std::string ShardedCheckpoint::file_name(const ShardRank& rank, const ShardSizes& sizes) {
    return fmt::format("dp_rank_00_{}tp_rank_{:02}_pp_rank_{:02}.pt",
                       sizes.experts > 1 ? fmt::format("ep_rank_{:02}_", rank.experts) : "", rank.tensor,
                       rank.pipeline);
}

}  // namespace drover
