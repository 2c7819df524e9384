#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/stream.h"
#include "core/tensor.h"
#include "parallel/param_spec.h"
#include "parallel/store_layout.h"

namespace drover {

class Arena;
class Backend;

/// A unit's storages in the order of its UnitSpec; absent ones are absent tensors. Storages without a trained
/// leaf have no gradient.
using UnitTensors = std::span<const Tensor>;

/// Where a unit's gradients go, storage by storage.
struct UnitGradients {
    UnitTensors tensors;
    bool accumulate = false;  ///< add to what is there; otherwise overwrite
};

/// The part of a leaf that this rank owns: what its optimizer updates, its checkpoint writes and its init
/// fills.
struct OwnedLeaf {
    const LeafSpec* spec = nullptr;
    std::int64_t row_begin = 0;  ///< the owned rows and columns of the global leaf (a vector has one column)
    std::int64_t row_count = 0;
    std::int64_t column_begin = 0;
    std::int64_t column_count = 0;
    bool counted = true;  ///< this part counts in sums over the model; another rank's copy of it does not
    bool counted_in_stage = true;  ///< likewise in sums over the ranks of this pipeline stage
    Tensor param;                  ///< packed
    Tensor gradient;               ///< packed; complete after finish_gradients(); absent: frozen
};

/// Weights and gradients as the model's forward and backward see them, independent of the sharding. Block by
/// block:
///
///     gather(next)                         start bringing the next unit's weights together
///     get(unit) … use … release(unit)      the whole matrices, and giving them up again
///     grad(unit) … write … reduce(unit)    this micro-batch's gradients of the unit are complete
///
/// Several gather/get/release rounds per micro-batch are normal (forward, then backward).
class ParamStore {
  public:
    virtual ~ParamStore() = default;

    virtual const ParamSpec& spec() const = 0;
    /// Takes the buffers from the arena; called once against a measuring arena and once against a real one.
    virtual void plan(Arena& arena) = 0;

    /// Asynchronous. Does nothing for a unit that is already here or being gathered.
    virtual void gather(Stream stream, int unit) = 0;
    /// Valid until release(unit); gathers the unit if needed. Later work on the stream sees the whole
    /// weights.
    virtual UnitTensors get(Stream stream, int unit) = 0;
    virtual void release(Stream stream, int unit) = 0;

    /// The position of a micro-batch in its optimizer step.
    struct PlaceInStep {
        bool first = true;  ///< its gradients overwrite; later ones add
        bool last = true;   ///< then the step's gradients are complete
    };
    /// The gradients of these units that are written next are those of such a micro-batch. Every unit is
    /// reduced once per micro-batch. Where a backward is computed in two parts, each part begins anew and
    /// writes storages of its own; the second one reduces.
    virtual void begin_backward(std::span<const int> units, PlaceInStep place) = 0;
    virtual UnitGradients grad(Stream stream, int unit) = 0;
    virtual void reduce(Stream stream, int unit) = 0;
    /// After the last micro-batch: every owned gradient is whole, in stream order.
    virtual void finish_gradients(Stream stream) = 0;
    /// Which of the owned parameters have been written.
    enum class Written : std::uint8_t { trained, all };
    /// What was gathered from these parameters is out of date.
    virtual void weights_changed(Written which) = 0;

    /// After plan(): the memory of a unit's gradients. With one micro-batch in an update nothing uses it from
    /// the update of the weights to the unit's turn in the next backward.
    virtual std::vector<Tensor> gradient_memory(int unit) const = 0;

    /// In the order of spec().
    virtual std::span<const OwnedLeaf> owned() const = 0;
};

/// The store for a kind of sharding over the mesh's data axis, with each leaf's tensor-parallel slice as its
/// spec says. `tokens_are_split`: between the seams of tensor parallelism a rank holds only its share of the
/// tokens. Without a gradient dtype, which only a replicated store can do, there are no gradients. Backend
/// and mesh must outlive the store.
std::unique_ptr<ParamStore> make_param_store(ParamSpec spec, Sharding sharding, const Mesh& mesh,
                                             bool tokens_are_split, DType param_dtype,
                                             std::optional<DType> gradient_dtype, Backend& backend);

// For the stores themselves.

OwnedLeaf own_leaf(const LeafPlacement& leaf, const Tensor& param, const Tensor& gradient);

/// Starts the sums over the tensor-parallel axis that a unit's gradients need before anything else: norm
/// weights when each rank saw only its share of the tokens, and key/value heads that several ranks hold a
/// copy of. `gradients` are the unit's storages on this rank. Collectives that are started later on the same
/// tensors come after these.
void start_tensor_parallel_sums(Stream stream, const Mesh& mesh, bool tokens_are_split,
                                const UnitPlacement& unit, const std::vector<Tensor>& gradients,
                                std::vector<Pending>& pending);

}  // namespace drover
