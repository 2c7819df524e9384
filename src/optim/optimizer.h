#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ops/optimizer.h"
#include "core/precision.h"
#include "parallel/mesh.h"
#include "parallel/param_store.h"

namespace drover {

/// One tensor of an optimizer's state, named for checkpoints: "exp_avg/model.norm.weight".
struct OptimizerState {
    /// What the numbers belong to: every element that the leaf's owner has, or every row or column of the
    /// whole leaf; every rank then holds all of them.
    enum class Covers : std::uint8_t { owned_elements, rows, columns };

    std::string name;
    const OwnedLeaf* leaf;
    Tensor tensor;
    Covers covers = Covers::owned_elements;
};

/// Updates the owned leaves of a store from their gradients. The step's numbers (learning rate, clip factor,
/// …) are read from `scalars`, a [StepScalar::count] f32 tensor on the device.
class Optimizer {
  public:
    virtual ~Optimizer() = default;

    /// Allocates persistent state (moments, master copies) from `state`, which is zeroed, and what a step
    /// needs from `scratch`. Both may be the arena that the store has been planned on; `state` may be slower
    /// memory.
    virtual void plan(Arena& state, Arena& scratch, const ParamStore& store) = 0;
    /// Sets the scalars that the host must supply for update number `step` (from 1).
    virtual void set_scalars(std::span<float> scalars, std::int64_t step) const = 0;
    /// Collective over the mesh: some optimizers need sums over whole leaves.
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
    AdamWForm form = AdamWForm::torch;
};

/// As set by the Trainer: external learning rate, no scaling by the parameters, no first moment.
struct AdafactorSettings {
    double eps = 1e-30;
    double clip_threshold = 1;
    double decay_rate = -0.8;
    double weight_decay = 0;
};

struct SgdSettings {
    double momentum = 0;
    double weight_decay = 0;
};

struct AdagradSettings {
    double eps = 1e-10;
    double weight_decay = 0;
};

struct RmspropSettings {
    double alpha = 0.99;
    double eps = 1e-8;
    double weight_decay = 0;
};

/// Which optimizer, and the settings of each; only those of the named one are used.
struct OptimizerSettings {
    std::string name = "adamw_torch";  ///< as in --optim
    AdamWSettings adamw{};
    AdafactorSettings adafactor{};
    SgdSettings sgd{};
    AdagradSettings adagrad{};
    RmspropSettings rmsprop{};
    std::uint64_t rounding_seed = 42;  ///< of stochastic rounding

    /// The default settings of the optimizer named `name` in --optim, with this weight decay.
    static OptimizerSettings named(std::string name, double weight_decay);
};

/// UsageError for an unknown name, listing the known ones, and for an unsupported precision. The mesh must
/// outlive the optimizer.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings, const Precision& precision,
                                          const Mesh& mesh);

}  // namespace drover
