#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/precision.h"
#include "parallel/param_store.h"

namespace drover {

/// One tensor of an optimizer's state, named for checkpoints: "exp_avg/model.norm.weight".
struct OptimizerState {
    std::string name;
    const OwnedLeaf* leaf;
    Tensor tensor;
};

/// Updates the owned leaves of a store from their gradients. The step's numbers (learning rate, clip factor, …) are read
/// from `scalars`, a [StepScalar::count] f32 tensor on the device.
class Optimizer {
  public:
    virtual ~Optimizer() = default;

    /// Takes the state from the arena, after the store has been planned on it; state starts at zero.
    virtual void plan(Arena& arena, const ParamStore& store) = 0;
    /// What the host must put into the scalars before update number `step` (from 1).
    virtual void set_scalars(std::span<float> scalars, std::int64_t step) const = 0;
    virtual void update(Backend& backend, Stream stream, const Tensor& scalars) = 0;

    /// The fp32 master copy of an owned leaf (index into store.owned()); absent without one.
    virtual Tensor master(std::size_t owned_leaf) const = 0;
    virtual std::vector<OptimizerState> state() const = 0;
};

struct AdamWSettings {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
};

std::unique_ptr<Optimizer> make_adamw(const AdamWSettings& settings, const Precision& precision);

}  // namespace drover
