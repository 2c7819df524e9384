#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "hub/find_model.h"
#include "model/config.h"
#include "run/processes.h"
#include "text/tokenizer.h"

namespace drover {

struct ModelSettings;
struct SettingNames;

/// The model of a run and its tokenizer.
struct ModelSource {
    ModelConfig config;
    std::filesystem::path weights{};  ///< folder; empty: the model starts from random weights
    Json generation;                  ///< contents of generation_config.json, or derived from the config
    std::shared_ptr<const Tokenizer> tokenizer;  ///< may be null if only token ids are read
    std::optional<std::uint64_t> seed{};         ///< of random weights; absent: the run's
};

/// Config and weights are looked up as the settings name them (find_pretrained). A vocabulary smaller than
/// the tokenizer's grows. Error, listing where it looked, if something is missing.
ModelSource find_model_source(const ModelSettings& settings, const SettingNames& names);
/// Only the tokenizer, as the given releases of transformers read it.
std::shared_ptr<const Tokenizer> find_tokenizer(const ModelSettings& settings, const SettingNames& names,
                                                TransformersRules rules = TransformersRules::v5);

/// The folder of that tokenizer's files.
std::filesystem::path find_tokenizer_folder(const ModelSettings& settings, const SettingNames& names);

/// The contents of generation_config.json in a model's folder, or values derived from its config.
Json find_generation_config(const std::filesystem::path& weights, const ModelConfig& config);

/// Error unless all ranks have the same config and tokenizer. Collective.
void check_models_alike(const Processes& processes, const ModelSource& model);

/// A local path as it is, otherwise the snapshot of a Hub repository, which is fetched where the cache lacks
/// what is wanted of it. `request` says that; its id is the name. `what` names the source in the Error.
std::filesystem::path find_pretrained(const std::string& name, std::string_view what,
                                      ModelRequest request = {});

/// Writes the files that accompany saved weights: config.json, generation_config.json, the tokenizer's files
/// if there is one, and training_args.json (`recorded_settings`).
void write_model_texts(const std::filesystem::path& folder, const ModelConfig& config, DType saved_dtype,
                       const Json& generation, const Tokenizer* tokenizer, const Json& recorded_settings);

/// The same without the model's: those of adapters, which have no config.
void write_run_texts(const std::filesystem::path& folder, const Tokenizer* tokenizer,
                     const Json& recorded_settings);

}  // namespace drover
