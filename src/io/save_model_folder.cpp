#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "core/text_file.h"
#include "io/model_folder.h"
#include "io/tensor_files.h"

namespace drover {
namespace {

/// Whether a save of ours (finished or not) may have left a file of this name: model.safetensors, its index,
/// a shard, or the partial file of one of them.
bool is_weight_file_name(std::string_view name) {
    const auto take = [&](std::string_view part) {
        if (!name.starts_with(part)) return false;
        name.remove_prefix(part.size());
        return true;
    };
    const auto take_digits = [&] {
        if (name.substr(0, 5).find_first_not_of("0123456789") != std::string_view::npos || name.size() < 5)
            return false;
        name.remove_prefix(5);
        return true;
    };
    if (!take("model")) return false;
    if (take("-") && !(take_digits() && take("-of-") && take_digits())) return false;
    if (!take(".safetensors")) return false;
    take(".index.json");
    take(".partial");
    return name.empty();
}

}  // namespace

void remove_stale_weights(const std::filesystem::path& folder, const std::set<std::string>& saved) {
    std::vector<std::filesystem::path> stale;
    std::error_code failure;
    for (const auto& file : std::filesystem::directory_iterator(folder, failure)) {
        const std::string name = file.path().filename().string();
        if (!saved.contains(name) && is_weight_file_name(name) && file.is_regular_file(failure))
            stale.push_back(file.path());
    }
    std::sort(stale.begin(), stale.end(), std::greater<>());  // "model.…" before "model-…"
    for (const std::filesystem::path& path : stale) {
        std::filesystem::remove(path, failure);
        if (failure)
            throw Error(fmt::format("The model is saved, but {} of an earlier save cannot be removed: {}.",
                                    path.string(), failure.message()),
                        "Remove it by hand, since it may be loaded instead.");
    }
}

std::filesystem::path staging_of_model(const std::filesystem::path& folder) {
    return folder / "model";
}

ShardPlan plan_shards(const std::vector<std::uint64_t>& tensor_bytes, std::uint64_t max_shard_bytes) {
    // A tensor over the limit gets its own file at once, while the file that was being filled stays open:
    // this is how Hugging Face numbers them.
    constexpr std::size_t open_shard = static_cast<std::size_t>(-1);
    std::vector<std::size_t> file_of;
    std::size_t shards = 0;
    std::uint64_t filled = 0;
    const auto close_shard = [&] {
        if (std::find(file_of.begin(), file_of.end(), open_shard) == file_of.end()) return;
        std::replace(file_of.begin(), file_of.end(), open_shard, shards++);
        filled = 0;
    };
    for (const std::uint64_t bytes : tensor_bytes) {
        if (bytes > max_shard_bytes) {
            file_of.push_back(shards++);
            continue;
        }
        if (filled + bytes > max_shard_bytes) close_shard();
        file_of.push_back(open_shard);
        filled += bytes;
    }
    close_shard();

    ShardPlan plan{.file_names = {}, .file_of = std::move(file_of)};
    if (shards <= 1) {
        plan.file_names.emplace_back(single_weights_file);
        return plan;
    }
    for (std::size_t i = 0; i < shards; ++i)
        plan.file_names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards));
    return plan;
}

void save_model_folder(const std::filesystem::path& folder, std::string_view config_json,
                       const std::vector<NamedTensor>& tensors, const SaveModelOptions& options) {
    std::vector<TensorFiles::Item> items;
    for (const NamedTensor& item : tensors) {
        require(item.tensor.packed() && item.tensor.device() == Device::cpu,
                "only packed CPU tensors can be saved");
        items.push_back(
            {item.name, item.tensor.dtype(), {item.tensor.shape().begin(), item.tensor.shape().end()}});
    }
    TensorFiles files;
    files.add_weights(items, options.max_shard_bytes);
    for (const NamedTensor& item : tensors) files.add_part(item.name, item.tensor);

    StagedFolder staged(staging_of_model(folder));
    try {
        staged.create();
        create_files(staged, files);
        for (const TensorFiles::Part& part : files.parts())
            staged.write(part.file, part.place, static_cast<const std::byte*>(part.source.raw()));
        staged.flush();
        if (!config_json.empty()) write_file_atomically(staged.staging() / "config.json", config_json);
        if (!options.generation_config_json.empty())
            write_file_atomically(staged.staging() / "generation_config.json",
                                  options.generation_config_json);
        staged.seal();
        staged.publish_files_into(folder);
    } catch (...) {
        staged.discard();
        throw;
    }
}

}  // namespace drover
