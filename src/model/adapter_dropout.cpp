#include "model/adapter_dropout.h"

#include "core/counter_rng.h"

namespace drover {
namespace {

/// The number by which a matrix' noise differs from that of others of its block.
std::uint64_t noise_of(BlockStorage::Index weight) {
    return static_cast<std::uint64_t>(weight == BlockStorage::router ? AdaptedMatrix::count
                                                                     : adapted_matrix(weight));
}

}  // namespace

bool adapters_drop(const BlockContext& context) {
    return context.adapters->dropout > 0 && context.batch.noise;
}

void drop_adapter_input(const BlockContext& context, int block, BlockStorage::Index weight,
                        DropElements elements) {
    const TokenNoise& noise = *context.batch.noise;
    std::uint64_t name = leaf_hash("lora_dropout");
    for (const std::uint64_t part : {noise_of(weight), static_cast<std::uint64_t>(block), noise.micro_batch})
        name = philox_stream(name, part);
    elements.scalars = noise.scalars;
    elements.rate = context.adapters->dropout;
    elements.seed = noise.seed;
    elements.leaf = name;
    context.run(elements);
}

}  // namespace drover
