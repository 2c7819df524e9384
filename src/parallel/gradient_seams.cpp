#include "parallel/gradient_seams.h"

namespace drover {

void start_tensor_parallel_sums(Stream stream, const Mesh& mesh, bool tokens_are_split,
                                const UnitPlacement& unit, const std::vector<Tensor>& gradients,
                                std::vector<Pending>& pending) {
    // The sums of the leaves for which `needed` holds.
    const auto start = [&](Communicator& axis, const auto& needed) {
        if (axis.size() == 1) return;
        axis.together(stream, [&] {
            for (std::size_t i = 0; i < unit.storages.size(); ++i)
                for (const LeafPlacement& leaf : unit.storages[i].leaves)
                    if (needed(leaf))
                        pending.push_back(axis.start_all_reduce(
                            stream, gradients[i].rows(leaf.storage_row, leaf.rows.count), Reduction::sum));
        });
    };
    const std::size_t earlier = pending.size();
    start(mesh.tp(), [&](const LeafPlacement& leaf) {
        return tokens_are_split && leaf.spec->gradient_over_held_tokens;
    });
    for (std::size_t i = earlier; i < pending.size(); ++i) mesh.key_value_copies().follow(pending[i]);
    start(mesh.key_value_copies(), [](const LeafPlacement& leaf) { return leaf.has_copies; });
}

}  // namespace drover
