#include "optim/gradient_norm.h"

#include <map>
#include <string_view>

#include "backend/backend.h"

namespace drover {

void GradientNorm::plan(Arena& arena, const ParamStore& store, const ParamSpec& model) {
    std::map<std::string_view, const OwnedLeaf*> here;
    for (const OwnedLeaf& leaf : store.owned()) here.emplace(leaf.spec->name, &leaf);
    const Tensor nothing = store.owned().front().param.rows(0, 0);
    gradients_.clear();
    weights_.clear();
    model.for_each_leaf([&](const LeafSpec& leaf) {
        const auto found = here.find(leaf.name);
        const OwnedLeaf* const part = found == here.end() ? nullptr : found->second;
        // Another rank's copy of a leaf is counted there and adds nothing here; a frozen leaf has none.
        const bool counts = part != nullptr && part->counted && part->gradient;
        gradients_.push_back(counts ? part->gradient : nothing);
        weights_.push_back(part != nullptr ? part->param : nothing);
    });
    sums_ = arena.make(MemoryUse::scratch, DType::f64, {static_cast<std::int64_t>(gradients_.size())});
}

void GradientNorm::sum(Backend& backend, Stream stream, Communicator& everyone,
                       const std::vector<Tensor>& leaves) const {
    backend.run(stream, SumOfSquares{.tensors = leaves, .sums = sums_});
    everyone.all_reduce(stream, sums_, Reduction::sum);
}

void GradientNorm::run(Backend& backend, Stream stream, Communicator& everyone, ClipFactor clipping) const {
    sum(backend, stream, everyone, gradients_);
    clipping.sums = sums_;
    backend.run(stream, clipping);
}

void GradientNorm::sum_weights(Backend& backend, Stream stream, Communicator& everyone) const {
    sum(backend, stream, everyone, weights_);
}

}  // namespace drover
