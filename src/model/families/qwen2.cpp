#include "model/config_reader.h"
#include "model/families/all.h"
#include "model/families/leaves.h"
#include "model/families/windows.h"

namespace drover {
namespace {

ModelConfig qwen2_defaults() {
    ModelConfig config = llama_family.defaults();
    config.model_type = "qwen2";
    config.vocab_size = 151936;
    config.intermediate_size = 22016;
    config.num_key_value_heads = 32;
    config.max_position_embeddings = 32768;
    config.bos_token_id = -1;
    config.eos_token_ids = {};
    return config;
}

void qwen2_read_options(const ConfigReader& reader, ModelConfig& config) {
    config.qkv_bias = true;
    read_layer_windows(reader, config);
}

}  // namespace

const Family qwen2_family{.model_type = "qwen2",
                          .architecture = "Qwen2ForCausalLM",
                          .block_class = "Qwen2DecoderLayer",
                          .defaults = qwen2_defaults,
                          .read_options = qwen2_read_options,
                          .saved_keys = saved_layer_windows,
                          .block_leaves = dense_block_leaves,
                          .overwritten_keys = overwritten_layer_windows};

}  // namespace drover
