#pragma once

#include <vector>

#include "parallel/param_store.h"

namespace drover {

/// The global gradient norm and the factor that clips it, computed on the device into StepScalar::gradient_norm and
/// clip_factor. Leaf by leaf in fp64, in a fixed order.
class GradientNorm {
  public:
    void plan(Arena& arena, const ParamStore& store);
    /// Summed over all ranks, copies counted once. `clipping` says what to do with the norm; its sums are
    /// computed here.
    void run(Backend& backend, Stream stream, Communicator& everyone, ClipFactor clipping) const;
    /// For each leaf, in the order of the store: the sum of squares over all ranks from which run() computed
    /// the norm.
    const Tensor& sums() const { return sums_; }

  private:
    std::vector<Tensor> gradients_;
    Tensor sums_;  // [leaves] f64
};

}  // namespace drover
