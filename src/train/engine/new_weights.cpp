#include "train/engine/new_weights.h"

#include <algorithm>

#include "model/config.h"
#include "train/engine/added_rows.h"

namespace drover {

ModelConfig before_resize(ModelConfig config) {
    if (config.rows_before_resize > 0) config.vocab_size = std::exchange(config.rows_before_resize, 0);
    return config;
}

NewWeights::NewWeights(const ModelConfig& config, const HfCompat& compat, std::uint64_t seed, InitKind kind)
    : config_(before_resize(config)),
      spec_(make_param_spec(config_, compat)),
      seed_(seed),
      init_(kind == InitKind::hugging_face ? std::make_unique<HfInit>(config_, spec_, seed) : nullptr) {}

void NewWeights::fill(const OwnedLeaf& leaf, std::span<float> out) const {
    if (init_)
        init_->fill(leaf, out);
    else
        fill_by_counter(leaf, seed_, config_.initializer_range, out);
}

std::vector<float> NewWeights::whole(std::string_view name) const {
    std::vector<float> values;
    spec_.for_each_leaf([&](const LeafSpec& leaf) {
        if (leaf.name != name) return;
        OwnedLeaf all;
        all.spec = &leaf;
        all.row_count = leaf.shape[0];
        all.column_count = leaf.shape.numel() / leaf.shape[0];
        values.resize(static_cast<std::size_t>(leaf.shape.numel()));
        fill(all, values);
    });
    require(!values.empty(), "a model has no leaf of this name");
    return values;
}

bool GrownLeaves::fill(const OwnedLeaf& leaf, std::span<float> out) const {
    const auto found = leaves.find(leaf.spec->name);
    if (found == leaves.end()) return false;
    const std::int64_t columns = leaf.spec->shape[1];
    for (std::int64_t row = 0; row < leaf.row_count; ++row)
        std::copy_n(found->second.begin() + (leaf.row_begin + row) * columns + leaf.column_begin,
                    leaf.column_count, out.begin() + row * leaf.column_count);
    return true;
}

GrownLeaves grow_vocabulary(const ModelConfig& config, TorchRng generator,
                            const std::function<std::vector<float>(const LeafSpec&)>& old_rows) {
    GrownLeaves grown;
    if (config.rows_before_resize == 0) return grown;
    const std::int64_t columns = config.hidden_size, added = config.vocab_size - config.rows_before_resize;
    const auto elements = static_cast<std::uint64_t>(config.vocab_size * columns);
    const auto grow = [&](std::string name) {
        const LeafSpec leaf{.name = std::move(name), .shape = {config.rows_before_resize, columns}};
        std::vector<float> rows = old_rows(leaf);
        const std::vector<float> more = draw_added_rows(rows, columns, added, generator);
        rows.insert(rows.end(), more.begin(), more.end());
        grown.leaves.emplace(leaf.name, std::move(rows));
    };
    generator.skip_normal(elements);
    grow("model.embed_tokens.weight");
    if (config.tie_word_embeddings) return grown;
    generator.skip_uniform(elements);
    grow("lm_head.weight");
    return grown;
}

}  // namespace drover
