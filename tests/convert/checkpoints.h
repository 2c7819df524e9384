#pragma once

#include <map>
#include <string>
#include <tuple>

#include "convert/conversion_writer.h"
#include "convert/model_plan.h"
#include "convert/nxd_plan.h"
#include "core/content_hash.h"
#include "core/json.h"
#include "core/json_text.h"
#include "support/golden.h"

namespace drover::test {

/// Type, shape, and a hash of the elements.
using Content = std::tuple<std::string, std::vector<std::int64_t>, std::string>;

inline Content content_of(const StridedTensor& tensor) {
    std::string bytes(
        static_cast<std::size_t>(tensor.rows() * tensor.columns() * (bits_of(tensor.dtype) / 8)), '\0');
    copy_block(tensor, 0, tensor.rows(), 0, tensor.columns(), reinterpret_cast<std::byte*>(bytes.data()),
               tensor.columns());
    return {std::string(name_of(tensor.dtype)), tensor.shape, ContentHash().add_bytes(bytes).hex()};
}

/// All tensors of a full model by name.
inline std::map<std::string, Content> content_of_model(const std::filesystem::path& path) {
    const FullCheckpoint model(path, "model");
    std::map<std::string, Content> contents;
    for (std::size_t i = 0; i < model.items().size(); ++i)
        contents[model.items()[i].name] = content_of(model.view(i));
    return contents;
}

/// All tensors of a rank.
inline std::map<std::string, Content> content_of_rank(const ShardedCheckpoint& shards,
                                                      const ShardRank& rank) {
    std::map<std::string, Content> contents;
    for (const auto& [name, item] : shards.tensors(rank)) contents[name] = content_of(shards.view(item));
    return contents;
}

inline ShardedCheckpoint open_shards(const std::filesystem::path& folder) {
    return ShardedCheckpoint(folder, {}, {}, {}, "model");
}

/// A case of tests/golden/nxd, with the settings that it was cut with.
struct NxdCase {
    std::string name;
    std::filesystem::path folder;
    NxdSettings settings;

    explicit NxdCase(const std::string& case_name)
        : name(case_name), folder(golden_path("nxd/" + case_name)) {
        const Json json = read_json_file(folder / "case.json");
        const std::string style = json.at("style").get<std::string>();
        settings = {.sizes = {.tensor = json.at("tp_size").get<std::int64_t>(),
                              .pipeline = json.at("pp_size").get<std::int64_t>(),
                              .experts = json.value("ep_size", std::int64_t{1})},
                    .virtual_pipeline = json.value("virtual_pp_size", std::int64_t{1}),
                    .qkv_linear = style == "linear" || style == "fused",
                    .fuse_qkv = style == "fused",
                    .coalesce_qkv = style == "coalesced",
                    .megatron = json.value("model_style", std::string()) == "megatron",
                    .kv_multiplier = json.value("kv_size_multiplier", std::int64_t{1}),
                    .pads_heads = json.value("pad_attn_heads", false),
                    .inner_multiple = json.value("i_tp_round_factor", std::int64_t{0}),
                    .xser = json.value("xser", false),
                    .config = ModelConfig::from_path(folder)};
        if (json.value("hw_backend", std::string()) == "trn2") settings.order = KvSlots::Order::adjacent;
    }
    std::filesystem::path full() const { return folder / "full.safetensors"; }
};

}  // namespace drover::test
