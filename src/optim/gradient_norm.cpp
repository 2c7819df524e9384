#include "optim/gradient_norm.h"

namespace drover {

void GradientNorm::plan(Arena& arena, const ParamStore& store) {
    gradients_.clear();
    // Another rank's copy of a leaf is counted there and adds nothing here.
    for (const OwnedLeaf& leaf : store.owned())
        gradients_.push_back(leaf.counted ? leaf.gradient : leaf.gradient.rows(0, 0));
    sums_ = arena.make(MemoryUse::scratch, DType::f64, {static_cast<std::int64_t>(gradients_.size())});
}

void GradientNorm::run(Backend& backend, Stream stream, Communicator& everyone, ClipFactor clipping) const {
    backend.run(stream, SumOfSquares{.tensors = gradients_, .sums = sums_});
    everyone.all_reduce(stream, sums_, Reduction::sum);
    clipping.sums = sums_;
    backend.run(stream, clipping);
}

}  // namespace drover
