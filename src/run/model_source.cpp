#include "run/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/json_text.h"
#include "core/python_json.h"
#include "core/text_file.h"
#include "hub/client.h"
#include "hub/places.h"
#include "hub/repository.h"
#include "model/saved_config.h"
#include "peft/peft_config.h"
#include "run/settings/run_settings.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

fs::path find_named(const std::string& name, std::string_view what, const ModelSettings& settings,
                    ModelParts parts = ModelParts::weights) {
    return find_pretrained(name, what,
                           {.revision = settings.revision,
                            .cache = settings.cache_dir,
                            .token = settings.token,
                            .parts = parts});
}

/// The loss of the experts' balance, as TRL's SFTTrainer sets it.
void balance_experts(ModelConfig& config, std::optional<double> coefficient) {
    MoeConfig& moe = config.moe;
    if (moe.experts == 0) {
        if (coefficient.value_or(0) == 0) return;
        throw UsageError(
            fmt::format("--router_aux_loss_coef is {}, but the model has no experts.", *coefficient),
            "Leave it out.");
    }
    moe.balance_coefficient = coefficient.value_or(moe.balance_coefficient);
    moe.balance_loss = moe.balance_coefficient != 0;
    config.json["router_aux_loss_coef"] = moe.balance_coefficient;
    config.json["output_router_logits"] = moe.balance_loss;
}

ModelConfig find_config(const ModelSettings& settings, const SettingNames& names) {
    ModelConfig config = [&] {
        if (!settings.config_name.empty())
            return ModelConfig::from_path(
                find_named(settings.config_name, names.config, settings, ModelParts::texts));
        if (!settings.model_name_or_path.empty())
            return ModelConfig::from_path(find_named(settings.model_name_or_path, names.model, settings));
        if (!settings.model_type.empty())
            return ModelConfig::parse(Json{{"model_type", settings.model_type}}.dump(), "--model_type");
        throw UsageError("Neither --model_name_or_path nor --config_name nor --model_type is given.",
                         "Name a model folder to train further, or a config to start from random weights.");
    }();
    if (!settings.config_overrides.empty()) config = with_config_overrides(config, settings.config_overrides);
    const std::int64_t layers = settings.num_layers, width = settings.hidden_size;
    if (width > 0 && width != config.hidden_size && !settings.model_name_or_path.empty() &&
        settings.config_name.empty())
        throw UsageError(fmt::format("--hidden_size is {}, but the weights of {} are {} wide.", width,
                                     settings.model_name_or_path, config.hidden_size),
                         "Leave it out, or name the config alone, with --config_name, to start from random "
                         "weights.");
    if (layers > 0 || width > 0) config = with_sizes(config, layers, width);
    if (settings.least_positions > config.max_position_embeddings)
        config = with_positions(config, settings.least_positions);
    if (settings.balances_experts) balance_experts(config, settings.balance_coefficient);
    return config;
}

/// A folder, or a file of a tokenizer.
fs::path tokenizer_path(const ModelSettings& settings, const SettingNames& names) {
    if (!settings.tokenizer_name.empty())
        return find_named(settings.tokenizer_name, names.tokenizer, settings, ModelParts::texts);
    if (!settings.model_name_or_path.empty())
        return find_named(settings.model_name_or_path, names.model, settings);
    throw UsageError("There is no tokenizer: neither --tokenizer_name nor --model_name_or_path is given.",
                     "Add --tokenizer_name with a folder, a tokenizer.json or a tokenizer.model.");
}

void refuse_adapter_folder(const ModelSettings& settings, const SettingNames& names) {
    const fs::path folder = find_named(settings.model_name_or_path, names.model, settings);
    if (!is_adapter_folder(folder) || fs::exists(folder / "config.json")) return;
    const std::string base = PeftConfig::read(folder).base_model;
    throw Error(fmt::format("{} is {}, which holds adapters{} and no model.", names.model,
                            settings.model_name_or_path, base.empty() ? "" : " of " + base),
                fmt::format("To go on training them, name the base model with {} and this folder with "
                            "--adapter_name_or_path; `drover convert --merge_adapter` makes a model of both.",
                            names.model));
}

/// Whether a name ends like that of a file, which no repository's does.
bool names_a_file(std::string_view name) {
    constexpr std::array endings{".json", ".yaml", ".yml", ".txt", ".safetensors", ".bin", ".pt"};
    return std::any_of(endings.begin(), endings.end(),
                       [&](std::string_view ending) { return name.ends_with(ending); });
}

/// "out" of "out/checkpoint-3"; empty where there is no slash.
std::string owner_of(const std::string& name) {
    const std::size_t slash = name.find('/');
    return slash == std::string::npos ? std::string() : name.substr(0, slash);
}

/// A checkpoint whose number is wrong looks like a name of the Hub.
bool is_below_a_folder(const std::string& name) {
    std::error_code unknown;
    return !owner_of(name).empty() && fs::is_directory(owner_of(name), unknown);
}

bool is_in_hub_cache(const ModelRequest& request) {
    const fs::path cache = request.cache.empty() ? hub_cache_folder() : request.cache;
    const Repository repository{.kind = RepositoryKind::model, .id = request.id};
    std::error_code unknown;
    return fs::is_directory(cache / repository.folder_name(), unknown);
}

}  // namespace

std::shared_ptr<const Tokenizer> find_tokenizer(const ModelSettings& settings, const SettingNames& names,
                                                TransformersRules rules) {
    return load_tokenizer(tokenizer_path(settings, names), rules);
}

fs::path find_tokenizer_folder(const ModelSettings& settings, const SettingNames& names) {
    const fs::path path = tokenizer_path(settings, names);
    return fs::is_directory(path) ? path : path.parent_path();
}

Json find_generation_config(const fs::path& weights, const ModelConfig& config) {
    const fs::path file = weights / "generation_config.json";
    return !weights.empty() && fs::exists(file) ? read_json_file(file) : derived_generation_config(config);
}

ModelSource find_model_source(const ModelSettings& settings, const SettingNames& names) {
    if (!settings.model_name_or_path.empty()) refuse_adapter_folder(settings, names);
    ModelSource source{.config = find_config(settings, names)};
    if (!settings.without_tokenizer) source.tokenizer = find_tokenizer(settings, names);
    if (!settings.model_name_or_path.empty())
        source.weights = find_named(settings.model_name_or_path, names.model, settings);
    source.generation = find_generation_config(source.weights, source.config);
    if (source.tokenizer && source.tokenizer->size() > source.config.vocab_size)
        source.config.resize_vocabulary(source.tokenizer->size());
    return source;
}

void check_models_alike(const Processes& processes, const ModelSource& model) {
    check_ranks_agree(processes.group,
                      {{"the model's config", ContentHash().add(model.config.json.dump()).hex()},
                       {"the tokenizer", model.tokenizer ? model.tokenizer->fingerprint() : ""}});
}

std::filesystem::path find_pretrained(const std::string& name, std::string_view what, ModelRequest request) {
    std::error_code unknown;
    if (fs::exists(name, unknown)) return name;
    if (!is_hub_id(name))
        throw Error(fmt::format("{} is \"{}\": there is no such file or folder, and it is not a name of the "
                                "Hub either.",
                                what, name),
                    "Check the path.");
    if (names_a_file(name))
        throw Error(fmt::format("{} is \"{}\": there is no such file.", what, name), "Check the path.");
    request.id = name;
    if (is_below_a_folder(name) && !is_in_hub_cache(request))
        throw Error(
            fmt::format("{} is \"{}\": there is a folder {}, and nothing of this name in it.", what, name,
                        owner_of(name)),
            fmt::format("Check the path. If you mean the repository of the Hub, fetch it first: drover fetch "
                        "{}",
                        name));
    try {
        return find_hub_model(request);
    } catch (const HubError& error) {
        throw Error(
            fmt::format("{} is \"{}\", and there is no such file or folder. {}", what, name, error.cause()),
            error.remedy() + " If it is a path, check its spelling.");
    }
}

void write_model_texts(const std::filesystem::path& folder, const ModelConfig& config, DType saved_dtype,
                       const Json& generation, const Tokenizer* tokenizer, const Json& recorded_settings) {
    write_file_atomically(folder / "config.json", config.saved_text(saved_dtype));
    write_file_atomically(folder / "generation_config.json", generation_config_text(generation));
    write_run_texts(folder, tokenizer, recorded_settings);
}

void write_run_texts(const std::filesystem::path& folder, const Tokenizer* tokenizer,
                     const Json& recorded_settings) {
    if (tokenizer != nullptr) save_tokenizer(*tokenizer, folder);
    Json settings = recorded_settings;
    settings.erase("steal_lock");  // meant for one run only; reusing the file must not steal again
    write_file_atomically(folder / "training_args.json", python_json(settings, 2) + "\n");
}

}  // namespace drover
