#include <fmt/format.h>

#include "model/config_reader.h"
#include "model/families/all.h"
#include "model/families/leaves.h"
#include "model/families/windows.h"

namespace drover {
namespace {

ModelConfig mixtral_defaults() {
    ModelConfig config = llama_family.defaults();
    config.model_type = "mixtral";
    config.intermediate_size = 14336;
    config.num_key_value_heads = 8;
    config.max_position_embeddings = 4096 * 32;
    config.rms_norm_eps = 1e-5;
    config.rope.theta = 1e6;
    config.moe.experts = 8;
    return config;
}

void mixtral_read_options(const ConfigReader& reader, ModelConfig& config) {
    MoeConfig& moe = config.moe;
    moe.experts = reader.integer("num_local_experts", moe.experts, 1, 1 << 12);
    moe.chosen = reader.integer("num_experts_per_tok", moe.chosen, 1, moe.experts);
    moe.balance_loss = reader.boolean("output_router_logits", moe.balance_loss);
    moe.balance_coefficient = reader.number("router_aux_loss_coef", moe.balance_coefficient);
    moe.jitter = reader.number("router_jitter_noise", moe.jitter);
    if (moe.jitter < 0 || moe.jitter > 1)
        reader.fail("router_jitter_noise", fmt::format("is {}", moe.jitter), "It must be from 0.0 to 1.0.");
    config.sliding_window = read_window(reader, 0);
}

Json mixtral_saved_keys(const ModelConfig&) {
    return {{"head_dim", nullptr},           {"num_experts_per_tok", 2},      {"num_local_experts", 8},
            {"output_router_logits", false}, {"router_aux_loss_coef", 0.001}, {"router_jitter_noise", 0.0},
            {"sliding_window", nullptr}};
}

/// block_sparse_moe: the router and the experts. In transformers 5.x all gates and ups are one tensor, and so
/// are all downs.
void add_experts(const ModelConfig& config, bool fused, int index, BlockLeaves& leaves) {
    const std::string moe = layer_prefix(index) + "block_sparse_moe.", mlp = layer_prefix(index) + "mlp.";
    const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
    const auto add = [&](BlockStorage::Index storage, LeafSpec leaf, const char* tensor) {
        if (fused) leaf.fused_tensor = mlp + tensor;
        leaves.push_back({storage, std::move(leaf)});
    };
    add(BlockStorage::router, matrix_leaf(moe + "gate.weight", config.moe.experts, hidden, Split::none),
        "gate.weight");
    for (std::int64_t e = 0; e < config.moe.experts; ++e) {
        const std::string expert = fmt::format("{}experts.{}.", moe, e);
        LeafSpec gate = matrix_leaf(expert + "w1.weight", ffn, hidden, Split::rows);
        LeafSpec up = matrix_leaf(expert + "w3.weight", ffn, hidden, Split::rows);
        if (fused) gate.statistics_group = up.statistics_group = expert + "gate_up";
        add(BlockStorage::experts_gate_up, std::move(gate), "experts.gate_up_proj");
        add(BlockStorage::experts_down, matrix_leaf(expert + "w2.weight", hidden, ffn, Split::columns),
            "experts.down_proj");
        add(BlockStorage::experts_gate_up, std::move(up), "experts.gate_up_proj");
    }
}

BlockLeaves mixtral_block_leaves(const ModelConfig& config, const HfCompat& compat, int index) {
    BlockLeaves leaves;
    add_attention(config, index, leaves);
    add_experts(config, compat.mixtral_experts_fused, index, leaves);
    add_block_norms(config, index, leaves);
    return leaves;
}

}  // namespace

const Family mixtral_family{.model_type = "mixtral",
                            .architecture = "MixtralForCausalLM",
                            .block_class = "MixtralDecoderLayer",
                            .defaults = mixtral_defaults,
                            .read_options = mixtral_read_options,
                            .saved_keys = mixtral_saved_keys,
                            .block_leaves = mixtral_block_leaves,
                            .old_releases_decay_norms = true};

}  // namespace drover
