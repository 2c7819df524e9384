#include "parallel/gradient_seams.h"

namespace drover {

void start_tensor_parallel_sums(Stream stream, const Mesh& mesh, bool tokens_are_split,
                                const UnitPlacement& unit, const std::vector<Tensor>& gradients,
                                std::vector<Pending>& pending) {
    for (std::size_t i = 0; i < unit.storages.size(); ++i)
        for (const LeafPlacement& leaf : unit.storages[i].leaves) {
            const Tensor gradient = gradients[i].rows(leaf.storage_row, leaf.rows.count);
            if (tokens_are_split && leaf.spec->gradient_over_held_tokens)
                pending.push_back(mesh.tp().start_all_reduce(stream, gradient, Reduction::sum));
            if (leaf.has_copies)
                pending.push_back(mesh.key_value_copies().start_all_reduce(stream, gradient, Reduction::sum));
        }
}

}  // namespace drover
