#include "data/packing/block_size.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace drover {
namespace {

constexpr std::int64_t least = 2;
constexpr double no_limit = 1e18;  // if there is no limit, Hugging Face's tokenizers have 1e30

}  // namespace

BlockSizeChoice choose_block_size(std::optional<std::int64_t> requested, double model_max_length,
                                  std::int64_t max_positions) {
    constexpr std::int64_t usual = 1024;
    if (requested && *requested < least)
        throw UsageError(
            fmt::format("The block size is {}, but a row needs one token to predict the next one "
                        "from.",
                        *requested),
            "Use at least 2.");
    if (!(model_max_length >= least))
        throw Error(fmt::format("The tokenizer's model_max_length is {}.", model_max_length),
                    "Mend tokenizer_config.json.");
    if (requested) {
        if (static_cast<double>(*requested) <= model_max_length) return {*requested, {}};
        const auto lowered = static_cast<std::int64_t>(model_max_length);
        return {lowered, fmt::format("The block size {} is larger than the tokenizer's model_max_length; "
                                     "{} is used.",
                                     *requested, lowered)};
    }
    if (model_max_length <= static_cast<double>(max_positions))
        return {static_cast<std::int64_t>(model_max_length), {}};
    const std::int64_t chosen = max_positions > 0 ? std::min(usual, max_positions) : usual;
    if (model_max_length >= no_limit)
        return {chosen, fmt::format("The tokenizer sets no limit; blocks of {} tokens are used (--block_size "
                                    "changes that).",
                                    chosen)};
    return {chosen,
            fmt::format("The tokenizer's model_max_length ({}) is more than the model's {} positions; blocks "
                        "of {} tokens are used (--block_size changes that).",
                        model_max_length, max_positions, chosen)};
}

BlockSizeChoice choose_longest_row(std::optional<std::int64_t> requested, double model_max_length,
                                   std::int64_t max_positions) {
    if (requested) return choose_block_size(requested, model_max_length, max_positions);
    const double positions = max_positions > 0 ? static_cast<double>(max_positions) : model_max_length;
    const double longest = std::min(model_max_length, positions);
    return {longest < no_limit ? static_cast<std::int64_t>(longest) : 0, {}};
}

}  // namespace drover
