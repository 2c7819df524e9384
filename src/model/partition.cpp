#include "model/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace drover {
namespace {

/// The first block of every stage.
std::vector<int> even_cuts(int blocks, int stages) {
    std::vector<int> cuts;
    const int each = blocks / stages, first_larger = stages - blocks % stages;
    int begin = 0;
    for (int stage = 0; stage + 1 < stages; ++stage) {
        begin += each + (stage >= first_larger ? 1 : 0);
        cuts.push_back(begin);
    }
    return cuts;
}

}  // namespace

std::vector<ModelChunk> cut_into_stages(const ModelConfig& config, int stages, const std::vector<int>& cuts) {
    const int blocks = static_cast<int>(config.num_hidden_layers);
    if (blocks < stages)
        throw Error(fmt::format("A pipeline of {} stages needs as many layers, but the model has {}.", stages,
                                blocks),
                    "Use a smaller --pipeline_parallel_size or --virtual_pipeline_size.");
    std::vector<int> bounds = cuts.empty() ? even_cuts(blocks, stages) : cuts;
    if (static_cast<int>(bounds.size()) != stages - 1)
        throw UsageError(
            fmt::format("--pipeline_cuts {} makes {} stages, but the pipeline has {}.", fmt::join(cuts, ","),
                        cuts.size() + 1, stages),
            fmt::format("Name the first layer of every stage but the first: {} numbers.", stages - 1));
    bounds.insert(bounds.begin(), 0);
    bounds.push_back(blocks);
    std::vector<ModelChunk> chunks;
    for (int stage = 0; stage < stages; ++stage) {
        const auto index = static_cast<std::size_t>(stage);
        if (bounds[index] >= bounds[index + 1])
            throw UsageError(fmt::format("--pipeline_cuts {} leaves stage {} of {} without layers.",
                                         fmt::join(cuts, ","), stage, stages),
                             fmt::format("The numbers must rise, from 1 to {}.", blocks - 1));
        chunks.push_back({.blocks = {bounds[index], bounds[index + 1] - bounds[index]},
                          .embeds = stage == 0,
                          .has_head = stage + 1 == stages});
    }
    return chunks;
}

}  // namespace drover
