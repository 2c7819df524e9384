#pragma once

#include <filesystem>
#include <string>

#include "hub/model_files.h"
#include "hub/repository.h"

namespace drover {

/// Where a model is looked for, and how much of it.
struct ModelRequest {
    std::string id{};
    std::string revision = "main";
    std::filesystem::path cache{};  ///< empty: the user's
    std::string token{};            ///< empty: that of the environment or the login
    ModelParts parts = ModelParts::weights;
};

/// The folder of a model of the Hub: its snapshot in the cache when that has the wanted parts; otherwise they
/// are fetched. A snapshot that lacks something is used when the network cannot be. One process of a machine
/// fetches while the others wait. HubError when there is none; Error when `id` is no id.
std::filesystem::path find_hub_model(const ModelRequest& request);

}  // namespace drover
