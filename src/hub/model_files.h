#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hub/repository.h"

namespace drover {

/// What is wanted of a model's repository.
enum class ModelParts {
    texts,    ///< config, tokenizer, chat templates, adapter_config.json
    weights,  ///< these, and the weights or the adapters
};

/// Files of a model apart from its weights that this program reads.
std::vector<RepositoryFile> model_texts(const RepositoryListing& listing);

/// The weights in one of their forms, the first that is there: model.safetensors, its shards, then
/// pytorch_model.bin and its shards; and adapters, safetensors before .bin. Of shards it is the index alone:
/// shards_of_index() gives the rest.
std::vector<RepositoryFile> model_weights(const RepositoryListing& listing);

/// The shards that a text such as model.safetensors.index.json names. Error when it is no index, or names a
/// file that the repository does not have.
std::vector<RepositoryFile> shards_of_index(const RepositoryListing& listing, std::string_view index,
                                            std::string_view where);

/// Whether the file is an index of shards.
bool is_index(const RepositoryFile& file);

/// Whether a folder has what is wanted, as far as the folder alone can tell: a config or a tokenizer, and
/// weights with all their shards.
bool has_model_parts(const std::filesystem::path& folder, ModelParts parts);

}  // namespace drover
