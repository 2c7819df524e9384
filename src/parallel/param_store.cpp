#include "parallel/param_store.h"

#include "parallel/replicated_store.h"
#include "parallel/sharded_store.h"

namespace drover {

OwnedLeaf own_leaf(const LeafPlacement& leaf, const Tensor& param, const Tensor& gradient) {
    return {.spec = leaf.spec,
            .row_begin = leaf.rows.begin + leaf.owned.begin,
            .row_count = leaf.owned.count,
            .column_begin = leaf.columns.begin,
            .column_count = leaf.columns.count,
            .counted = leaf.counted,
            .counted_in_stage = leaf.counted_in_stage,
            .param = param,
            .gradient = gradient};
}

void start_tensor_parallel_sums(Stream stream, const Mesh& mesh, bool tokens_are_split,
                                const UnitPlacement& unit, const std::vector<Tensor>& gradients,
                                std::vector<Pending>& pending) {
    // The sums of the leaves for which `needed` holds.
    const auto start = [&](Communicator& axis, const auto& needed) {
        if (axis.size() == 1) return;
        axis.together(stream, [&] {
            for (std::size_t i = 0; i < unit.storages.size(); ++i)
                for (const LeafPlacement& leaf : unit.storages[i].leaves)
                    if (leaf.spec->trained && needed(leaf))
                        pending.push_back(axis.start_all_reduce(
                            stream, gradients[i].rows(leaf.storage_row, leaf.rows.count), Reduction::sum));
        });
    };
    const std::size_t earlier = pending.size();
    start(mesh.tp(), [&](const LeafPlacement& leaf) {
        const PartialGradient partial = leaf.spec->partial_gradient;
        return partial == PartialGradient::always ||
               (tokens_are_split && partial == PartialGradient::when_tokens_are_split);
    });
    for (std::size_t i = earlier; i < pending.size(); ++i) mesh.key_value_copies().follow(pending[i]);
    start(mesh.key_value_copies(), [](const LeafPlacement& leaf) { return leaf.has_copies; });
}

std::unique_ptr<ParamStore> make_param_store(ParamSpec spec, Sharding sharding, const Mesh& mesh,
                                             bool tokens_are_split, DType param_dtype,
                                             std::optional<DType> gradient_dtype, Backend& backend) {
    if (sharding == Sharding::replicated || mesh.data().idle())
        return std::make_unique<ReplicatedStore>(std::move(spec), mesh, tokens_are_split, param_dtype,
                                                 gradient_dtype);
    require(gradient_dtype.has_value(), "a sharded store without gradients");
    return std::make_unique<ShardedStore>(std::move(spec), sharding, mesh, tokens_are_split, param_dtype,
                                          *gradient_dtype, backend);
}

}  // namespace drover
