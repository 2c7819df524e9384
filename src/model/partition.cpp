#include "model/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "core/error.h"
#include "model/flops.h"

namespace drover {
namespace {

void check_number_of_stages(int blocks, int stages) {
    if (blocks < stages)
        throw Error(
            fmt::format("A pipeline of {} stages needs as many layers, but the model has {}.", stages,
                        blocks),
            fmt::format("Make --pipeline_parallel_size times --virtual_pipeline_size at most {}.", blocks));
}

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

double sum_of(const StageTimes& times) {
    return times.forward + times.backward_input + times.backward_weight;
}

/// The costs of consecutive stages.
struct StageCosts {
    double most = 0;
    double squares = 0;  // the smaller, the more even

    StageCosts with(double cost) const { return {std::max(most, cost), squares + cost * cost}; }
    bool is_better_than(const StageCosts& other) const {
        constexpr double rounding = 1e-9;
        if (most < other.most * (1 - rounding)) return true;
        return most <= other.most * (1 + rounding) && squares < other.squares * (1 - rounding);
    }
};

/// How the blocks from one on are best dealt to the last stages.
struct BestEnd {
    StageCosts costs{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    int next = 0;  // the first block of the second of these stages
};

}  // namespace

std::vector<ModelChunk> cut_into_stages(const ModelConfig& config, int stages, const std::vector<int>& cuts) {
    const int blocks = static_cast<int>(config.num_hidden_layers);
    check_number_of_stages(blocks, stages);
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

StageTimes stage_times(const ModelConfig& config, const ModelChunk& chunk, const StageWork& work) {
    StageTimes times{.forward = 0, .backward_input = 0, .backward_weight = 0};
    for (auto block = static_cast<int>(chunk.blocks.begin); block < chunk.blocks.end(); ++block) {
        const BlockFlops flops = block_flops(config, block, work.row_length);
        const Recompute recompute = work.recompute.of_block(block);
        times.forward += flops.all();
        const double at_once = config.has_experts() ? flops.feed_forward : 0;
        times.backward_input += flops.products + 2 * flops.attention + at_once;
        times.backward_weight += flops.products - at_once;
        if (recompute == Recompute::selective_mlp) times.backward_input += flops.gate_up;
        if (recompute == Recompute::selective_attention) times.backward_input += flops.products;
        if (recompute == Recompute::full) times.backward_input += flops.all();
    }
    const auto hidden = static_cast<double>(config.hidden_size);
    if (chunk.embeds) {
        times.forward += hidden;         // a copy
        times.backward_input += hidden;  // an addition
    }
    if (chunk.has_head) times.backward_input += 3 * head_flops(config);
    return times;
}

std::vector<int> balanced_cuts(const ModelConfig& config, int stages, const StageWork& work) {
    const int blocks = static_cast<int>(config.num_hidden_layers);
    check_number_of_stages(blocks, stages);
    std::vector<double> cost_before{0};  // of the blocks before each
    for (int block = 0; block < blocks; ++block)
        cost_before.push_back(
            cost_before.back() +
            sum_of(stage_times(config, {.blocks = {block, 1}, .embeds = false, .has_head = false}, work)));
    const double embedding = sum_of(stage_times(config, {.blocks = {}, .has_head = false}, work));
    const double head = sum_of(stage_times(config, {.blocks = {}, .embeds = false}, work));

    // From the last stage to the first: the best end from each block on.
    std::vector<std::vector<BestEnd>> best(static_cast<std::size_t>(stages) + 1,
                                           std::vector<BestEnd>(static_cast<std::size_t>(blocks) + 1));
    best.back().back().costs = {};
    for (int stage = stages - 1; stage >= 0; --stage)
        for (int begin = stage; begin < blocks; ++begin) {
            BestEnd& found = best[static_cast<std::size_t>(stage)][static_cast<std::size_t>(begin)];
            for (int end = begin + 1; end <= blocks; ++end) {
                const double cost = cost_before[static_cast<std::size_t>(end)] -
                                    cost_before[static_cast<std::size_t>(begin)] +
                                    (stage == 0 ? embedding : 0) + (stage + 1 == stages ? head : 0);
                const StageCosts costs =
                    best[static_cast<std::size_t>(stage) + 1][static_cast<std::size_t>(end)].costs.with(cost);
                if (costs.is_better_than(found.costs)) found = {costs, end};
            }
        }
    std::vector<int> cuts;
    for (int stage = 0, begin = 0; stage + 1 < stages; ++stage)
        cuts.push_back(begin = best[static_cast<std::size_t>(stage)][static_cast<std::size_t>(begin)].next);
    return cuts;
}

}  // namespace drover
