#include "hub/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/text_file.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 13> text_names{"config.json",
                                                      "generation_config.json",
                                                      "tokenizer.json",
                                                      "tokenizer.model",
                                                      "vocab.json",
                                                      "merges.txt",
                                                      "tokenizer_config.json",
                                                      "added_tokens.json",
                                                      "special_tokens_map.json",
                                                      "chat_template.jinja",
                                                      "chat_template.json",
                                                      "adapter_config.json",
                                                      "params.json"};

/// In the order in which they are preferred.
constexpr std::array<std::string_view, 4> weight_names{"model.safetensors", "model.safetensors.index.json",
                                                       "pytorch_model.bin", "pytorch_model.bin.index.json"};
constexpr std::array<std::string_view, 2> adapter_names{"adapter_model.safetensors", "adapter_model.bin"};

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

/// The files that an index names; Error when it is none.
std::set<std::string> names_in_index(std::string_view index, std::string_view where) {
    const Json content = Json::parse(index, nullptr, false);
    const auto map = content.is_object() ? content.find("weight_map") : content.end();
    std::set<std::string> names;
    if (content.is_object() && map != content.end() && map->is_object())
        for (const auto& [tensor, file] : map->items())
            if (file.is_string()) names.insert(file.get<std::string>());
    if (names.empty())
        throw Error(fmt::format("{} names no files of weights.", where),
                    "Check the repository, or use another revision.");
    return names;
}

bool has_weights(const fs::path& folder) {
    for (const std::string_view name : adapter_names)
        if (is_there(folder / name)) return true;
    for (const std::string_view name : weight_names) {
        if (!is_there(folder / name)) continue;
        if (!name.ends_with(".index.json")) return true;
        const std::set<std::string> shards =
            names_in_index(read_text_file(folder / name), (folder / name).string());
        return std::all_of(shards.begin(), shards.end(),
                           [&](const std::string& shard) { return is_there(folder / shard); });
    }
    return false;
}

}  // namespace

bool is_index(const RepositoryFile& file) {
    return file.path.ends_with(".index.json");
}

std::vector<RepositoryFile> model_texts(const RepositoryListing& listing) {
    std::vector<RepositoryFile> files;
    for (const RepositoryFile& file : listing.files) {
        const bool named = std::find(text_names.begin(), text_names.end(), file.path) != text_names.end();
        if (named || file.path.starts_with("additional_chat_templates/")) files.push_back(file);
    }
    return files;
}

std::vector<RepositoryFile> model_weights(const RepositoryListing& listing) {
    std::vector<RepositoryFile> files;
    const auto add_first = [&](auto& names) {
        for (const std::string_view name : names)
            if (const RepositoryFile* file = listing.find(name)) {
                files.push_back(*file);
                return;
            }
    };
    add_first(weight_names);
    add_first(adapter_names);
    return files;
}

std::vector<RepositoryFile> shards_of_index(const RepositoryListing& listing, std::string_view index,
                                            std::string_view where) {
    std::vector<RepositoryFile> files;
    for (const std::string& name : names_in_index(index, where)) {
        const RepositoryFile* file = listing.find(name);
        if (file == nullptr)
            throw Error(fmt::format("{} names {}, which the repository does not have.", where, name),
                        "Check the repository, or use another revision.");
        files.push_back(*file);
    }
    return files;
}

bool has_model_parts(const fs::path& folder, ModelParts parts) {
    const bool texts = std::any_of(text_names.begin(), text_names.end(),
                                   [&](std::string_view name) { return is_there(folder / name); });
    return texts && (parts == ModelParts::texts || has_weights(folder));
}

}  // namespace drover
