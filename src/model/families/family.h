#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hf_compat.h"
#include "core/json.h"
#include "model/params.h"

namespace drover {

class ConfigReader;
struct ModelConfig;

/// A leaf of a decoder block, and the storage that it is part of.
struct BlockLeaf {
    BlockStorage::Index storage;
    LeafSpec leaf;
};

/// A family of models: everything that depends on the model_type of a config.json. Each family is a file of
/// this folder; the rest of the program asks for options of ModelConfig, never for the family's name.
/// docs/howto/family.md says how to add one.
struct Family {
    std::string_view model_type;    ///< "llama"
    std::string_view architecture;  ///< the class that transformers saves: "LlamaForCausalLM"
    std::string_view block_class;   ///< what FSDP is told to wrap: "LlamaDecoderLayer"

    /// The values of keys that a config.json may leave out. A num_key_value_heads of 0 stands for
    /// num_attention_heads, and a head_dim of 0 for hidden_size / num_attention_heads.
    ModelConfig (*defaults)();
    /// Reads the keys that only some families have, and sets the options of the block. The keys of all
    /// families have been read.
    void (*read_options)(const ConfigReader& reader, ModelConfig& config);
    /// The keys that transformers writes for this class besides those of all classes, with the values of
    /// keys that the file left out or set to null.
    Json (*saved_keys)(const ModelConfig& config);
    /// The leaves of block `index` in the order in which PyTorch's modules list them.
    std::vector<BlockLeaf> (*block_leaves)(const ModelConfig& config, const HfCompat& compat, int index);

    /// Keys that transformers overwrites when it reads a config, with their new values; nullptr: none.
    Json (*overwritten_keys)(const ModelConfig& config) = nullptr;
    /// HfCompat::mixtral_norms_decayed applies to it.
    bool old_releases_decay_norms = false;
};

/// All families, by model_type.
std::span<const Family* const> families();

/// nullptr if there is no such family.
const Family* find_family(std::string_view model_type);

/// What to write instead of a model_type that is not known: the nearest one, and all that are.
std::string known_families_text(std::string_view model_type);

/// The family of a config that was parsed.
const Family& family_of(const ModelConfig& config);

}  // namespace drover
