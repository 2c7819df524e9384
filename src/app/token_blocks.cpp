#include "app/token_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/torch_rng.h"
#include "io/safetensors.h"

namespace drover {

TokenBlocks::TokenBlocks(const std::filesystem::path& file, std::int64_t block_size, std::int64_t vocab_size)
    : block_size_(block_size) {
    const SafetensorsFile source(file);
    const Tensor stored = source.tensor("input_ids");
    if (stored.rank() != 1 || (stored.dtype() != DType::u16 && stored.dtype() != DType::i32))
        throw Error(fmt::format("{}: input_ids is {}.", file.string(), stored.text()),
                    "It must be a list of uint16 or int32 token ids.");
    if (stored.dtype() == DType::u16)
        ids_.assign(stored.data<std::uint16_t>(), stored.data<std::uint16_t>() + stored.numel());
    else
        ids_.assign(stored.data<std::int32_t>(), stored.data<std::int32_t>() + stored.numel());

    const auto bad =
        std::find_if(ids_.begin(), ids_.end(), [&](std::int32_t id) { return id < 0 || id >= vocab_size; });
    if (bad != ids_.end())
        throw Error(fmt::format("{} holds token id {} at position {}, but the model's vocab_size is {}.",
                                file.string(), *bad, bad - ids_.begin(), vocab_size),
                    "Use the config that belongs to the tokenizer of this data.");
    blocks_ = static_cast<std::int64_t>(ids_.size()) / block_size;
    training_ = blocks_ - std::max<std::int64_t>(1, blocks_ / 20);
    if (training_ < 1)
        throw Error(fmt::format("{} holds {} tokens, too few for two blocks of {}.", file.string(),
                                ids_.size(), block_size),
                    "Use a smaller --block_size or more data.");
}

TokenBatch TokenBlocks::training_batch(std::int64_t number, std::int64_t rows, std::uint64_t seed) const {
    rows = std::min(rows, training_);
    const std::int64_t per_epoch = training_ / rows;
    TorchRng generator(seed + static_cast<std::uint64_t>(number / per_epoch));
    const std::vector<std::int64_t> order = generator.randperm(training_);
    const auto begin = order.begin() + number % per_epoch * rows;
    return batch_of({begin, begin + rows});
}

TokenBatch TokenBlocks::held_out_batch(std::int64_t first, std::int64_t rows) const {
    std::vector<std::int64_t> blocks;
    for (std::int64_t i = first; i < std::min(first + rows, held_out()); ++i) blocks.push_back(training_ + i);
    return batch_of(blocks);
}

TokenBatch TokenBlocks::batch_of(const std::vector<std::int64_t>& blocks) const {
    std::vector<std::int32_t> ids;
    for (const std::int64_t block : blocks) {
        const auto begin = ids_.begin() + block * block_size_;
        ids.insert(ids.end(), begin, begin + block_size_);
    }
    return TokenBatch::from_labels(static_cast<std::int64_t>(blocks.size()), block_size_, ids, ids);
}

}  // namespace drover
