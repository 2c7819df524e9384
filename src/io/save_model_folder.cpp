#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "core/json.h"
#include "io/model_folder.h"
#include "core/partial_file.h"

namespace drover {
namespace {

PartialFile text_file(const std::filesystem::path& path, std::string_view text) {
    PartialFile file(path, text.size());
    file.write(0, text.data(), text.size());
    file.finish();
    return file;
}

PartialFile weight_file(const std::filesystem::path& path, const std::vector<const NamedTensor*>& tensors) {
    std::vector<SafetensorsLayout::Item> items;
    for (const NamedTensor* item : tensors) {
        require(item->tensor.packed() && item->tensor.device() == Device::cpu,
                "only packed CPU tensors can be saved");
        const Shape& shape = item->tensor.shape();
        items.push_back({item->name, item->tensor.dtype(), {shape.begin(), shape.end()}});
    }
    const SafetensorsLayout layout(std::move(items));
    PartialFile file(path, layout.file_size());
    file.write(0, layout.header_bytes().data(), layout.header_bytes().size());
    for (const NamedTensor* item : tensors)
        file.write(layout.offset_of(item->name), item->tensor.raw(), item->tensor.bytes());
    file.finish();
    return file;
}

/// The index as Python's json.dumps(indent=2, sort_keys=True) writes it.
std::string index_text(const std::vector<NamedTensor>& tensors, const ShardPlan& plan) {
    nlohmann::json weight_map = nlohmann::json::object();  // sorts its keys
    std::uint64_t parameters = 0, bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        weight_map[tensors[i].name] = plan.file_names[plan.file_of[i]];
        parameters += static_cast<std::uint64_t>(tensors[i].tensor.numel());
        bytes += tensors[i].tensor.bytes();
    }
    const nlohmann::json index{{"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
                               {"weight_map", std::move(weight_map)}};
    constexpr bool escape_beyond_ascii = true;
    return index.dump(2, ' ', escape_beyond_ascii) + "\n";
}

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

/// Removes weight files of earlier saves that the new save does not have. What decides how a folder is read
/// (the single file, the index) goes before the shards, so that it never loads as something never saved.
void remove_stale_files(const std::filesystem::path& folder, const std::set<std::string>& saved) {
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

}  // namespace

ShardPlan plan_shards(const std::vector<std::uint64_t>& tensor_bytes, std::uint64_t max_shard_bytes) {
    // A tensor over the limit is closed into a file of its own at once, while the file that was being filled
    // stays open behind it: this is how Hugging Face numbers them.
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
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure)
        throw Error(fmt::format("Cannot make the folder {}: {}.", folder.string(), failure.message()),
                    "Check the path and its permissions.");

    std::vector<std::uint64_t> tensor_bytes;
    for (const NamedTensor& item : tensors) tensor_bytes.push_back(item.tensor.bytes());
    const ShardPlan plan = plan_shards(tensor_bytes, options.max_shard_bytes);

    std::vector<std::vector<const NamedTensor*>> shards(plan.file_names.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) shards[plan.file_of[i]].push_back(&tensors[i]);
    std::set<std::string> names(plan.file_names.begin(), plan.file_names.end());
    std::vector<PartialFile> files;
    for (std::size_t i = 0; i < shards.size(); ++i)
        files.push_back(weight_file(folder / plan.file_names[i], shards[i]));
    if (shards.size() > 1) {
        files.push_back(text_file(folder / weights_index_file, index_text(tensors, plan)));
        names.emplace(weights_index_file);
    }
    if (!config_json.empty()) files.push_back(text_file(folder / "config.json", config_json));
    if (!options.generation_config_json.empty())
        files.push_back(text_file(folder / "generation_config.json", options.generation_config_json));

    for (PartialFile& file : files) file.commit();
    remove_stale_files(folder, names);
    sync_folder(folder);
}

}  // namespace drover
