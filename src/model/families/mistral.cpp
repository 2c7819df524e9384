#include "model/config_reader.h"
#include "model/families/all.h"
#include "model/families/leaves.h"
#include "model/families/windows.h"

namespace drover {
namespace {

ModelConfig mistral_defaults() {
    ModelConfig config = llama_family.defaults();
    config.model_type = "mistral";
    config.intermediate_size = 14336;
    config.num_key_value_heads = 8;
    config.max_position_embeddings = 4096 * 32;
    return config;
}

void mistral_read_options(const ConfigReader& reader, ModelConfig& config) {
    config.sliding_window = read_window(reader, default_window);
}

Json mistral_saved_keys(const ModelConfig& config) {
    return {{"head_dim", config.head_dim}, {"sliding_window", default_window}};
}

}  // namespace

const Family mistral_family{.model_type = "mistral",
                            .architecture = "MistralForCausalLM",
                            .block_class = "MistralDecoderLayer",
                            .defaults = mistral_defaults,
                            .read_options = mistral_read_options,
                            .saved_keys = mistral_saved_keys,
                            .block_leaves = dense_block_leaves};

}  // namespace drover
