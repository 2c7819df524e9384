#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "core/json.h"
#include "model/config.h"
#include "parallel/param_spec.h"
#include "run/processes.h"
#include "run/settings/run_settings.h"
#include "text/tokenizer.h"

namespace drover {

/// The model of a run and its tokenizer.
struct ModelSource {
    ModelConfig config;
    std::filesystem::path weights{};  ///< folder; empty: the model starts from random weights
    Json generation;                  ///< what generation_config.json said, or what follows from the config
    std::shared_ptr<const Tokenizer> tokenizer;  ///< may be null where only token ids are read
    /// A weight as somebody has it in memory, instead of `weights`; collective. Empty: nobody has.
    std::function<std::vector<float>(const LeafSpec&)> weights_in_memory{};
};

/// Config and weights are looked for where the settings name them: a local path as it is, else the snapshot
/// of a Hub repository in the cache. A vocabulary that is smaller than the tokenizer's grows. Error when
/// something is missing, which says where it looked.
ModelSource find_model_source(const ModelSettings& settings, const SettingNames& names);
/// The tokenizer alone, as the given releases of transformers read it.
std::shared_ptr<const Tokenizer> find_tokenizer(const ModelSettings& settings, const SettingNames& names,
                                                TransformersRules rules = TransformersRules::v5);

/// What generation_config.json of a model's folder says, or what follows from its config.
Json find_generation_config(const std::filesystem::path& weights, const ModelConfig& config);

/// Error unless all ranks have the same config and tokenizer. Collective.
void check_models_alike(const Processes& processes, const ModelSource& model);

}  // namespace drover
