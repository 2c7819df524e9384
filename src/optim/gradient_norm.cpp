#include "optim/gradient_norm.h"

#include <map>
#include <string_view>

namespace drover {

void GradientNorm::plan(Arena& arena, const ParamStore& store, const ParamSpec& model) {
    std::map<std::string_view, const OwnedLeaf*> here;
    for (const OwnedLeaf& leaf : store.owned()) here.emplace(leaf.spec->name, &leaf);
    const OwnedLeaf& any = store.owned().front();
    gradients_.clear();
    weights_.clear();
    model.for_each_leaf([&](const LeafSpec& leaf) {
        const auto found = here.find(leaf.name);
        const OwnedLeaf& part = found == here.end() ? any : *found->second;
        // Another rank's copy of a leaf is counted there and adds nothing here.
        const bool counts = found != here.end() && part.counted;
        gradients_.push_back(counts ? part.gradient : part.gradient.rows(0, 0));
        weights_.push_back(found != here.end() ? part.param : part.param.rows(0, 0));
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
