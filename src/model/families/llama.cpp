#include "model/config.h"
#include "model/config_reader.h"
#include "model/families/all.h"
#include "model/families/leaves.h"

namespace drover {
namespace {

ModelConfig llama_defaults() {
    ModelConfig config;
    config.model_type = "llama";
    config.vocab_size = 32000;
    config.hidden_size = 4096;
    config.intermediate_size = 11008;
    config.num_hidden_layers = 32;
    config.num_attention_heads = 32;
    config.num_key_value_heads = 0;
    config.head_dim = 0;
    config.max_position_embeddings = 2048;
    config.rms_norm_eps = 1e-6;
    config.rope.theta = 10000;
    config.bos_token_id = 1;
    config.eos_token_ids = {2};
    return config;
}

void llama_read_options(const ConfigReader& reader, ModelConfig& config) {
    config.qkv_bias = config.attention_output_bias = reader.boolean("attention_bias", false);
    config.mlp_bias = reader.boolean("mlp_bias", false);
}

Json llama_saved_keys(const ModelConfig& config) {
    return {
        {"attention_bias", false}, {"head_dim", config.head_dim}, {"mlp_bias", false}, {"pretraining_tp", 1}};
}

}  // namespace

const Family llama_family{.model_type = "llama",
                          .architecture = "LlamaForCausalLM",
                          .block_class = "LlamaDecoderLayer",
                          .defaults = llama_defaults,
                          .read_options = llama_read_options,
                          .saved_keys = llama_saved_keys,
                          .block_leaves = dense_block_leaves};

}  // namespace drover
