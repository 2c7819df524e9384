#include "model/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "model/config.h"
#include "model/families/family.h"
#include "model/families/leaves.h"

namespace drover {
namespace {

bool is_norm(BlockStorage::Index storage) {
    return storage == BlockStorage::attention_norm || storage == BlockStorage::mlp_norm;
}

bool norms_decayed(const Family& family, const HfCompat& compat) {
    return family.old_releases_decay_norms && compat.mixtral_norms_decayed;
}

UnitSpec block_unit(const ModelConfig& config, const HfCompat& compat, int index) {
    UnitSpec unit{.name = fmt::format("block {}", index), .storages = {}};
    unit.storages.resize(BlockStorage::count);
    const Family& family = family_of(config);
    for (BlockLeaf& part : family.block_leaves(config, compat, index)) {
        if (is_norm(part.storage)) part.leaf.decayed |= norms_decayed(family, compat);
        unit.storages[part.storage].leaves.push_back(std::move(part.leaf));
    }
    return unit;
}

}  // namespace

ParamSpec make_param_spec(const ModelConfig& config, const HfCompat& compat) {
    ParamSpec spec;
    LeafSpec embedding =
        matrix_leaf("model.embed_tokens.weight", config.vocab_size, config.hidden_size, Split::rows);
    embedding.zeroed_row = config.pad_token_id;
    spec.units.push_back(
        {.name = "embedding", .kind = UnitSpec::Kind::embedding, .storages = {{{embedding}}}});
    for (int i = 0; i < config.num_hidden_layers; ++i) spec.units.push_back(block_unit(config, compat, i));

    StorageSpec head;
    if (!config.tie_word_embeddings)
        head = {{matrix_leaf("lm_head.weight", config.vocab_size, config.hidden_size, Split::rows)}};
    LeafSpec final_norm = norm_leaf("model.norm.weight", config.hidden_size);
    final_norm.decayed |= norms_decayed(family_of(config), compat);
    spec.units.push_back({.name = "head", .kind = UnitSpec::Kind::head, .storages = {{{final_norm}}, head}});
    return spec;
}

std::int64_t active_parameter_count(const ModelConfig& config) {
    const std::int64_t expert = 3 * config.hidden_size * config.intermediate_size;
    const std::int64_t unused = config.has_experts() ? config.moe.experts - config.moe.chosen : 0;
    return make_param_spec(config).parameter_count() - config.num_hidden_layers * unused * expert;
}

std::vector<std::string> names_in_module_order(const ModelConfig& config) {
    std::vector<std::string> names = {"model.embed_tokens.weight"};
    for (int i = 0; i < config.num_hidden_layers; ++i)
        for (const BlockLeaf& part : family_of(config).block_leaves(config, {}, i))
            names.push_back(part.leaf.name);
    names.push_back("model.norm.weight");
    if (!config.tie_word_embeddings) names.push_back("lm_head.weight");
    return names;
}

bool takes_weight_decay(std::string_view name) {
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    for (const char* word : {"bias", "layernorm", "rmsnorm"})
        if (lower.find(word) != std::string::npos) return false;
    for (std::size_t begin = 0; begin <= lower.size();) {
        const std::size_t end = std::min(lower.find('.', begin), lower.size());
        const std::string_view part = std::string_view(lower).substr(begin, end - begin);
        if (part == "norm" || part.ends_with("_norm")) return false;
        begin = end + 1;
    }
    return true;
}

}  // namespace drover
