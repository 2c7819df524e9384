#include "train/generation_config.h"

#include "core/python_text.h"

namespace drover {

std::string generation_config_text(const ModelConfig& config) {
    Json json = {{"_from_model_config", true}};
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"})
        if (config.json.contains(key) && !config.json.at(key).is_null()) json[key] = config.json.at(key);
    return python_json(json, 2) + "\n";
}

}  // namespace drover
