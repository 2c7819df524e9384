#include "model/init.h"

#include <algorithm>

#include "model/params.h"

namespace drover {

HfInit::HfInit(const ModelConfig& config, const ParamSpec& spec, std::uint64_t seed)
    : standard_deviation_(config.initializer_range) {
    std::map<std::string_view, const LeafSpec*> leaves;
    for (const UnitSpec& unit : spec.units)
        for (const StorageSpec& storage : unit.storages)
            for (const LeafSpec& leaf : storage.leaves) leaves[leaf.name] = &leaf;

    static constexpr std::string_view embedding_name = "model.embed_tokens.weight", head_name = "lm_head.weight";
    const std::vector<std::string> names = names_in_module_order(config);
    TorchRng generator(seed);

    // Constructors: the embedding draws normals; every linear layer uniforms for its weight, then for its bias.
    const auto numel = [&](const std::string& name) {
        return static_cast<std::uint64_t>(leaves.at(name)->shape.numel());
    };
    std::uint64_t uniforms = 0;
    for (const std::string& name : names) {
        const bool is_norm = leaves.at(name)->initial == Initial::ones;
        if (name != embedding_name && name != head_name && !is_norm) uniforms += numel(name);
    }
    generator.skip_normal(numel(std::string(embedding_name)));
    generator.skip_uniform(uniforms);

    // The model's own init, in the same order; only matrices draw.
    const auto draw = [&](const std::string& name) {
        generators_.emplace(name, generator);
        generator.skip_normal(numel(name));
    };
    for (const std::string& name : names)
        if (name != head_name && leaves.at(name)->initial == Initial::normal) draw(name);

    // The head is constructed and drawn last.
    if (!config.tie_word_embeddings) {
        generator.skip_uniform(numel(std::string(head_name)));
        draw(std::string(head_name));
    }
}

void HfInit::fill(const OwnedLeaf& leaf, std::span<float> out) const {
    const LeafSpec& spec = *leaf.spec;
    if (spec.initial != Initial::normal) {
        std::fill(out.begin(), out.end(), spec.initial == Initial::ones ? 1.0f : 0.0f);
        return;
    }
    const auto rows = static_cast<std::uint64_t>(spec.shape[0]);
    const MatrixSlice slice{.rows = rows,
                            .columns = static_cast<std::uint64_t>(spec.shape.numel()) / rows,
                            .row_begin = static_cast<std::uint64_t>(leaf.row_begin),
                            .row_count = static_cast<std::uint64_t>(leaf.row_count),
                            .column_begin = static_cast<std::uint64_t>(leaf.column_begin),
                            .column_count = static_cast<std::uint64_t>(leaf.column_count)};
    generators_.find(spec.name)->second.normal_slice(slice, out, 0.0, standard_deviation_);

    const std::int64_t zeroed = spec.zeroed_row - leaf.row_begin;
    if (spec.zeroed_row >= 0 && zeroed >= 0 && zeroed < leaf.row_count)
        std::fill_n(out.begin() + zeroed * leaf.column_count, leaf.column_count, 0.0f);
}

}  // namespace drover
