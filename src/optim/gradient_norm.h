#pragma once

#include <vector>

#include "backend/ops/optimizer.h"
#include "parallel/param_store.h"

namespace drover {

/// The global gradient norm and the factor that clips it, computed on the device into
/// StepScalar::gradient_norm and clip_factor. Leaf by leaf in fp64, in a fixed order.
class GradientNorm {
  public:
    /// `model` has all leaves of the model, of which the store may have some.
    void plan(Arena& arena, const ParamStore& store, const ParamSpec& model);
    /// Summed over all ranks, copies counted once. `clipping` says what to do with the norm; its sums are
    /// computed here.
    void run(Backend& backend, Stream stream, Communicator& everyone, ClipFactor clipping) const;
    /// For each leaf of the model: the sum of squares over all ranks from which run() computed the norm.
    const Tensor& sums() const { return sums_; }
    /// Computes these sums for the weights instead.
    void sum_weights(Backend& backend, Stream stream, Communicator& everyone) const;

  private:
    void sum(Backend& backend, Stream stream, Communicator& everyone,
             const std::vector<Tensor>& leaves) const;

    std::vector<Tensor> gradients_, weights_;  // [leaf of the model]: nothing of those that are not here
    Tensor sums_;                              // [leaves] f64
};

}  // namespace drover
