#include "model/stage.h"

#include <numeric>

namespace drover {

std::vector<int> StageChunk::block_units() const {
    std::vector<int> units(static_cast<std::size_t>(blocks()));
    std::iota(units.begin(), units.end(), first_block);
    return units;
}

std::vector<int> StageChunk::units() const {
    std::vector<int> units = block_units();
    for (const int unit : {embedding, head, projection})
        if (unit >= 0) units.push_back(unit);
    return units;
}

Stage make_stage(const ModelConfig& config, const ParamSpec& whole, const std::vector<ModelChunk>& stages,
                 int ranks, int rank) {
    const int all_blocks = static_cast<int>(config.num_hidden_layers);
    Stage stage;
    const auto add = [&](int unit) {
        stage.spec.units.push_back(whole.units[static_cast<std::size_t>(unit)]);
        return static_cast<int>(stage.spec.units.size()) - 1;
    };
    for (std::size_t i = static_cast<std::size_t>(rank); i < stages.size();
         i += static_cast<std::size_t>(ranks)) {
        StageChunk chunk{.layers = stages[i]};
        if (!stage.chunks.empty()) chunk.blocks_before = stage.blocks();
        if (chunk.layers.embeds) chunk.embedding = add(UnitIndex::embedding);
        chunk.first_block = static_cast<int>(stage.spec.units.size());
        for (int block = 0; block < chunk.blocks(); ++block) add(UnitIndex::block(chunk.block(block)));
        if (chunk.layers.has_head) {
            chunk.head = add(UnitIndex::head(all_blocks));
            chunk.projection = chunk.head;
            if (config.tie_word_embeddings && chunk.embedding >= 0) chunk.projection = chunk.embedding;
            if (config.tie_word_embeddings && chunk.embedding < 0) {
                chunk.projection = add(UnitIndex::embedding);
                stage.spec.units.back().is_copy = true;
            }
        }
        stage.chunks.push_back(chunk);
    }
    return stage;
}

}  // namespace drover
