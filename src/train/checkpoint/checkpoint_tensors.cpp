#include "train/checkpoint/checkpoint_tensors.h"

#include "model/adapters.h"
#include "model/config.h"
#include "model/params.h"

namespace drover {
namespace {

void add_owned_part(TensorFiles& files, const std::string& name, const OwnedLeaf& leaf,
                    const Tensor& tensor) {
    if (!leaf.counted) return;
    files.add_part(name, tensor, leaf.row_begin, leaf.row_count, leaf.column_begin, leaf.column_count,
                   leaf.spec->shape.numel() / leaf.spec->shape[0]);
}

std::vector<std::int64_t> sizes_of(const Shape& shape) {
    return {shape.begin(), shape.end()};
}

}  // namespace

bool is_master(const OptimizerState& state) {
    return state.name.starts_with("master/");
}

Shape global_shape(const OptimizerState& state) {
    const Shape& whole = state.leaf->spec->shape;
    switch (state.covers) {
        case OptimizerState::Covers::owned_elements:
            return whole;
        case OptimizerState::Covers::rows:
            return {whole[0]};
        case OptimizerState::Covers::columns:
            return {whole[1]};
    }
    bug("a state that covers nothing known");
}

void add_model_tensors(TensorFiles& files, const SavedTensors& saved, std::uint64_t max_shard_bytes) {
    std::map<std::string_view, const LeafSpec*> specs;
    saved.model.for_each_leaf([&](const LeafSpec& leaf) { specs.emplace(leaf.name, &leaf); });
    std::vector<TensorFiles::Item> items;
    for (const std::string& name : names_in_module_order(saved.config))
        items.push_back({name, saved.dtype, sizes_of(specs.at(name)->shape)});
    files.add_weights(items, max_shard_bytes);
    for (std::size_t i = 0; i < saved.store.owned().size(); ++i) {
        const OwnedLeaf& leaf = saved.store.owned()[i];
        const Tensor master = saved.optimizer.master(i);
        add_owned_part(files, leaf.spec->name, leaf, master ? master : leaf.param);
    }
}

void add_adapter_tensors(TensorFiles& files, const SavedTensors& saved) {
    const auto name_of = [](const LeafSpec& leaf) { return std::string(adapter_prefix) + leaf.name; };
    std::vector<TensorFiles::Item> items;
    saved.model.for_each_leaf([&](const LeafSpec& leaf) {
        if (leaf.trained) items.push_back({name_of(leaf), saved.dtype, sizes_of(leaf.shape)});
    });
    files.add_file(adapter_file, std::move(items));
    for (std::size_t i = 0; i < saved.store.owned().size(); ++i) {
        const OwnedLeaf& leaf = saved.store.owned()[i];
        const Tensor master = saved.optimizer.master(i);
        if (leaf.spec->trained)
            add_owned_part(files, name_of(*leaf.spec), leaf, master ? master : leaf.param);
    }
}

std::vector<TensorFiles::Item> saved_items(const std::vector<OptimizerState>& states) {
    std::vector<TensorFiles::Item> items;
    for (const OptimizerState& state : states)
        if (!is_master(state))
            items.push_back({state.name, state.tensor.dtype(), sizes_of(global_shape(state))});
    return items;
}

void add_optimizer_tensors(TensorFiles& files, const SavedTensors& saved,
                           std::vector<TensorFiles::Item> items) {
    files.add_file(optimizer_file, std::move(items));
    for (const OptimizerState& state : saved.optimizer.state()) {
        if (is_master(state)) continue;
        if (state.covers == OptimizerState::Covers::owned_elements)
            add_owned_part(files, state.name, *state.leaf, state.tensor);
        else if (saved.is_first_of_stage && state.leaf->counted)
            files.add_part(state.name, state.tensor);
    }
}

}  // namespace drover
