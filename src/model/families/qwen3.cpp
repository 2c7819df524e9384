#include "model/config_reader.h"
#include "model/families/all.h"
#include "model/families/leaves.h"
#include "model/families/windows.h"

namespace drover {
namespace {

ModelConfig qwen3_defaults() {
    ModelConfig config = qwen2_family.defaults();
    config.model_type = "qwen3";
    config.head_dim = 128;
    return config;
}

void qwen3_read_options(const ConfigReader& reader, ModelConfig& config) {
    config.qkv_bias = config.attention_output_bias = reader.boolean("attention_bias", false);
    config.head_norms = true;
    read_layer_windows(reader, config);
}

Json qwen3_saved_keys(const ModelConfig& config) {
    Json keys = saved_layer_windows(config);
    keys["attention_bias"] = false;
    keys["head_dim"] = config.head_dim;
    return keys;
}

}  // namespace

const Family qwen3_family{.model_type = "qwen3",
                          .architecture = "Qwen3ForCausalLM",
                          .block_class = "Qwen3DecoderLayer",
                          .defaults = qwen3_defaults,
                          .read_options = qwen3_read_options,
                          .saved_keys = qwen3_saved_keys,
                          .block_leaves = dense_block_leaves,
                          .overwritten_keys = overwritten_layer_windows};

}  // namespace drover
