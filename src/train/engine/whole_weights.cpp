#include "train/engine/whole_weights.h"

#include <algorithm>

#include "core/convert.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

std::int64_t columns_of(const LeafSpec& leaf) {
    return leaf.shape.numel() / leaf.shape[0];
}

}  // namespace

std::vector<float> read_owned_part(const TrainEngine& engine, std::size_t index, Backend& backend) {
    const Tensor master = engine.optimizer().master(index);
    const Tensor stored = master ? master : engine.store().owned()[index].param;
    std::vector<std::byte> raw(stored.bytes());
    const Stream stream = backend.main_stream();
    backend.copy(stream, stored, Tensor(raw.data(), stored.dtype(), stored.shape()));
    backend.synchronize(stream);
    std::vector<float> values(static_cast<std::size_t>(stored.numel()));
    convert_elements(raw.data(), stored.dtype(), values.data(), DType::f32, stored.numel());
    return values;
}

void place_owned_part(const OwnedLeaf& leaf, std::span<const float> part, std::span<float> whole) {
    const std::int64_t columns = columns_of(*leaf.spec);
    for (std::int64_t row = 0; row < leaf.row_count; ++row)
        std::copy_n(part.begin() + row * leaf.column_count, leaf.column_count,
                    whole.begin() + (leaf.row_begin + row) * columns + leaf.column_begin);
}

bool holds_whole_weights(const TrainEngine& engine) {
    const auto owned = engine.store().owned();
    if (engine.store().spec().parameter_count() != engine.model_spec().parameter_count()) return false;
    return std::all_of(owned.begin(), owned.end(), [](const OwnedLeaf& leaf) {
        return leaf.row_count == leaf.spec->shape[0] && leaf.column_count == columns_of(*leaf.spec);
    });
}

std::vector<float> read_whole_leaf(const TrainEngine& engine, std::string_view name, Backend& backend,
                                   const Mesh& mesh) {
    const auto owned = engine.store().owned();
    const auto here = std::find_if(owned.begin(), owned.end(),
                                   [&](const OwnedLeaf& leaf) { return leaf.spec->name == name; });
    const auto index = static_cast<std::size_t>(here - owned.begin());
    if (holds_whole_weights(engine)) return read_owned_part(engine, index, backend);
    // Every element is in the counted part of exactly one rank and zero on all others, so the sum is exact.
    std::int64_t elements = 0;
    engine.model_spec().for_each_leaf([&](const LeafSpec& leaf) {
        if (leaf.name == name) elements = leaf.shape.numel();
    });
    std::vector<float> whole(static_cast<std::size_t>(elements), 0.0f);
    if (here != owned.end() && here->counted && here->row_count > 0)
        place_owned_part(*here, read_owned_part(engine, index, backend), whole);
    mesh.everyone_on_host().all_reduce(
        {}, Tensor::of(whole.data(), {static_cast<std::int64_t>(whole.size())}), Reduction::sum);
    return whole;
}

}  // namespace drover
