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
            .param = param,
            .gradient = gradient};
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
