#include "parallel/replicated_store.h"

#include <algorithm>
#include <iterator>

namespace drover {

ReplicatedStore::ReplicatedStore(ParamSpec spec, const Mesh& mesh, bool tokens_are_split, DType param_dtype,
                                 std::optional<DType> gradient_dtype)
    : spec_(std::move(spec)),
      mesh_(mesh),
      tokens_are_split_(tokens_are_split),
      param_dtype_(param_dtype),
      gradient_dtype_(gradient_dtype),
      placement_(place_parameters(spec_, mesh, false)) {}

void ReplicatedStore::plan(Arena& arena) {
    weights_.assign(placement_.size(), {});
    gradients_.assign(placement_.size(), {});
    written_.assign(placement_.size(), false);
    owned_.clear();
    for (std::size_t unit = 0; unit < placement_.size(); ++unit)
        for (const StoragePlacement& storage : placement_[unit].storages)
            weights_[unit].push_back(storage.present()
                                         ? arena.make(MemoryUse::parameters, param_dtype_, storage.shape)
                                         : Tensor());
    // A unit's gradients are next to each other, so that their memory can be lent in one piece.
    for (std::size_t unit = 0; unit < placement_.size(); ++unit)
        for (const StoragePlacement& storage : placement_[unit].storages) {
            const bool has_gradient = gradient_dtype_ && storage.present() && storage.trained();
            const Tensor weight = weights_[unit][gradients_[unit].size()],
                         gradient = has_gradient
                                        ? arena.make(MemoryUse::gradients, *gradient_dtype_, storage.shape)
                                        : Tensor();
            gradients_[unit].push_back(gradient);
            for (const LeafPlacement& leaf : storage.leaves)
                owned_.push_back(own_leaf(leaf, weight.rows(leaf.storage_row, leaf.rows.count),
                                          gradient && leaf.spec->trained
                                              ? gradient.rows(leaf.storage_row, leaf.rows.count)
                                              : Tensor()));
        }
}

void ReplicatedStore::begin_backward(std::span<const int> units, PlaceInStep place) {
    for (const int unit : units) written_[static_cast<std::size_t>(unit)] = !place.first;
    last_micro_batch_ = place.last;
}

UnitGradients ReplicatedStore::grad(Stream, int unit) {
    require(gradient_dtype_.has_value(), "gradients of a model that is only used");
    const auto index = static_cast<std::size_t>(unit);
    const bool accumulate = written_[index];
    written_[index] = true;
    return {.tensors = gradients_[index], .accumulate = accumulate};
}

void ReplicatedStore::reduce(Stream stream, int unit) {
    if (!last_micro_batch_) return;
    const auto index = static_cast<std::size_t>(unit);
    const std::size_t earlier = pending_.size();
    start_tensor_parallel_sums(stream, mesh_, tokens_are_split_, placement_[index], gradients_[index],
                               pending_);
    Communicator& replicas = mesh_.replicas();
    for (std::size_t i = earlier; i < pending_.size(); ++i) replicas.follow(pending_[i]);
    replicas.together(stream, [&] {
        for (const Tensor& gradient : gradients_[index])
            if (gradient) pending_.push_back(replicas.start_all_reduce(stream, gradient, Reduction::sum));
    });
}

void ReplicatedStore::finish_gradients(Stream stream) {
    for (Pending& pending : pending_) pending.wait(stream);
    pending_.clear();
}

std::vector<Tensor> ReplicatedStore::gradient_memory(int unit) const {
    std::vector<Tensor> present;
    std::ranges::copy_if(gradients_[static_cast<std::size_t>(unit)], std::back_inserter(present),
                         [](const Tensor& gradient) { return static_cast<bool>(gradient); });
    return present;
}

}  // namespace drover
