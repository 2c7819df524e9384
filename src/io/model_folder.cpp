#include "io/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "core/json.h"
#include "core/json_text.h"
#include "core/lfs_pointer.h"
#include "core/text_file.h"
#include "io/fused_experts.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

using safetensors_detail::quoted_name;

bool is_there(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

/// The index's weight_map: tensor name → file name, both checked.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index_path) {
    const std::string text = read_text_file(index_path);
    const std::string where = index_path.string();
    refuse_lfs_pointer(text, where);
    const Json index = parse_json(text, where);
    constexpr std::string_view remedy = "Fetch the file again, or save the model again.";
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
        throw Error(fmt::format("{} has no object \"weight_map\".", where), remedy);
    std::map<std::string, std::string> weight_map;
    for (const auto& [name, file] : index["weight_map"].items()) {
        if (!file.is_string())
            throw Error(
                fmt::format("{} does not give a file name for the tensor {}.", where, quoted_name(name)),
                remedy);
        const auto& file_name = file.get_ref<const std::string&>();
        if (!is_plain_file_name(file_name))
            throw Error(
                fmt::format("{} puts the tensor {} into {}, which is not a file name inside the folder.",
                            where, quoted_name(name), quoted_name(file_name)),
                "Do not use this model unless you trust its author; shards belong beside the index.");
        weight_map.emplace(name, file_name);
    }
    if (weight_map.empty()) throw Error(fmt::format("{} lists no tensors.", where), remedy);
    return weight_map;
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

bool is_plain_path(std::string_view path) {
    const std::size_t slash = path.find('/');
    if (slash == std::string_view::npos) return is_plain_file_name(path);
    return is_plain_file_name(path.substr(0, slash)) && is_plain_file_name(path.substr(slash + 1));
}

ModelWeights::ModelWeights(const std::filesystem::path& folder_or_file, std::string_view key)
    : path_(folder_or_file), key_(key) {
    open();
}

void ModelWeights::open() {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path_, ignored)) return add_file(path_);
    for (const auto& [single, index] : {std::pair{single_weights_file, weights_index_file},
                                        std::pair{single_pickle_file, pickle_index_file}}) {
        if (is_there(path_ / single)) return add_file(path_ / single);
        if (is_there(path_ / index)) return open_shards(path_ / index);
    }
    throw Error(fmt::format("{} holds no weights: neither {} nor {}, and no {} either.", path_.string(),
                            single_weights_file, weights_index_file, single_pickle_file),
                "Check the path; it must be a folder saved with save_pretrained.");
}

void ModelWeights::add_file(const std::filesystem::path& file) {
    const WeightFile& added = files_.emplace_back(file, key_);
    SafetensorsHeader packed;
    for (const SafetensorsEntry& entry : added.header().entries)
        if (added.is_packed(entry.name)) packed.entries.push_back(entry);
    const FusedExperts fused = split_fused_experts(packed);
    const auto add = [&](const SafetensorsEntry& entry) {
        const auto [place, is_new] = entries_.emplace(entry.name, Place{files_.size() - 1, entry});
        if (!is_new)
            throw Error(
                fmt::format("{} has the tensor {} in two shards, {} and {}.", path_.string(),
                            quoted_name(entry.name), files_[place->second.file].path().filename().string(),
                            file.filename().string()),
                "Save or fetch the model again.");
    };
    for (const SafetensorsEntry& entry : added.header().entries)
        if (!fused.replaced.contains(entry.name)) add(entry);
    for (const SafetensorsEntry& entry : fused.published) add(entry);
}

void ModelWeights::open_shards(const std::filesystem::path& index_path) {
    const auto weight_map = read_weight_map(index_path);
    std::set<std::string> shards;
    for (const auto& [name, file] : weight_map) shards.insert(file);
    for (const std::string& shard : shards) {
        if (!is_there(path_ / shard))
            throw Error(fmt::format("{} names the shard {}, which is not in the folder.", index_path.string(),
                                    quoted_name(shard)),
                        "Fetch the missing file.");
        add_file(path_ / shard);
    }
    for (const auto& listed : weight_map) {
        const auto has_it = [&](const WeightFile& shard) {
            return shard.path().filename() == listed.second && shard.find(listed.first) != nullptr;
        };
        if (std::none_of(files_.begin(), files_.end(), has_it))
            throw Error(
                fmt::format("{} puts the tensor {} into {}, which does not have it.", index_path.string(),
                            quoted_name(listed.first), quoted_name(listed.second)),
                "The index and the shards come from different saves: fetch or save the model again.");
    }
}

const SafetensorsEntry* ModelWeights::entry(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second.entry;
}

Tensor ModelWeights::find(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? Tensor() : files_[found->second.file].tensor(found->second.entry);
}

StridedTensor ModelWeights::view(std::string_view name) const {
    const auto found = entries_.find(name);
    require(found != entries_.end(), "a tensor that is not among the weights");
    return files_[found->second.file].view(found->second.entry);
}

void ModelWeights::verify(std::string_view name) const {
    const auto found = entries_.find(name);
    require(found != entries_.end(), "a tensor that is not among the weights");
    files_[found->second.file].verify(found->second.entry);
}

void ModelWeights::forget() const {
    for (const WeightFile& file : files_) file.forget();
}

std::vector<std::string> ModelWeights::names() const {
    std::vector<std::string> result;
    for (const auto& [name, place] : entries_) result.push_back(name);
    return result;
}

}  // namespace drover
