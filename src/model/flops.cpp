#include "model/flops.h"

#include <algorithm>

namespace drover {
namespace {

/// How many keys a token's attention sees, on average over a row.
double mean_keys(const ModelConfig& config, int block, std::int64_t row_length) {
    const auto length = static_cast<double>(row_length);
    const auto window = static_cast<double>(config.window_of(block));
    const double seen = window > 0 ? std::min(window, length) : length;
    return seen * (1 - seen / (2 * length));
}

}  // namespace

BlockFlops block_flops(const ModelConfig& config, int block, std::int64_t row_length) {
    const auto hidden = static_cast<double>(config.hidden_size);
    const auto queries = static_cast<double>(config.query_columns());
    const auto keys_and_values = static_cast<double>(2 * config.key_value_columns());
    const auto experts = static_cast<double>(config.moe.experts);
    const double width = static_cast<double>(config.intermediate_size) *
                         (config.has_experts() ? static_cast<double>(config.moe.chosen) : 1);
    // A product takes a multiplication and an addition per weight.
    const double gate_up = 2 * hidden * 2 * width;
    const double feed_forward = gate_up + 2 * hidden * (width + experts);
    return {.products = 2 * hidden * (queries + keys_and_values + queries) + feed_forward,
            .feed_forward = feed_forward,
            .gate_up = gate_up,
            .attention = 4 * queries * mean_keys(config, block, row_length)};
}

double head_flops(const ModelConfig& config) {
    return 2 * static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
}

}  // namespace drover
