#pragma once

#include <map>

#include "parallel/param_store.h"

namespace drover {

/// ZeRO-1, -2 and -3: each rank of the data axis owns some rows of every leaf, updates those, and gets the
/// other rows from their owners.
///
/// Weights are whole in a buffer that all-gathers fill: one per unit, kept (ZeRO-1, -2), or a few that the
/// units share in turn (ZeRO-3). Gradients are produced whole in a buffer that a reduce-scatter empties into
/// the owned rows: one per unit, at the end of the step (ZeRO-1), or a few that the units share in turn,
/// every micro-batch (ZeRO-2, -3).
class ShardedStore final : public ParamStore {
  public:
    /// The mesh's data axis is not idle.
    ShardedStore(ParamSpec spec, Sharding sharding, const Mesh& mesh, bool tokens_are_split,
                 DType param_dtype, DType gradient_dtype, Backend& backend);

    const ParamSpec& spec() const override { return spec_; }
    void plan(Arena& arena) override;

    void gather(Stream stream, int unit) override;
    UnitTensors get(Stream stream, int unit) override;
    void release(Stream stream, int unit) override;
    void weights_changed(Written which) override;

    void begin_backward(std::span<const int> units, PlaceInStep place) override;
    UnitGradients grad(Stream stream, int unit) override;
    void reduce(Stream stream, int unit) override;
    void finish_gradients(Stream stream) override;

    std::vector<Tensor> gradient_memory(int unit) const override;

    std::span<const OwnedLeaf> owned() const override { return owned_; }

  private:
    /// [storage][leaf]
    using LeafTensors = std::vector<std::vector<Tensor>>;

    /// Whole storages of one unit.
    struct Buffers {
        std::vector<Tensor> storages;
        LeafTensors
            padded;  ///< present where rows do not divide evenly: room for equal shards during communication
        LeafTensors incoming;  ///< gradients of a later micro-batch, before they are added to the shards
    };

    /// Memory for whole storages that one unit at a time uses.
    struct Slot {
        std::map<int, Buffers> of_unit;  ///< the same memory for each of its units
        int unit = -1;                   ///< whose tensors it holds or receives
        /// The tensors of that unit.
        Buffers& buffers() { return of_unit.at(unit); }
        bool has_frozen = false;  ///< of weights: the frozen leaves are there and need not be gathered again
        bool in_use = false;      ///< got and not yet released; or gradients begun and not yet reduced
        std::vector<Pending> pending;
    };

    int weight_slot(int unit) const { return gathers_each_use_ ? turn(unit) : unit; }
    int gradient_slot(int unit) const { return scatters_each_micro_batch_ ? turn(unit) : unit; }
    int turn(int unit) const;

    /// With `gradients`, for storages and leaves that have some, and for those of later micro-batches if
    /// units take turns.
    void plan_slots(Arena& arena, MemoryUse use, DType dtype, bool units_take_turns, bool gradients,
                    std::vector<Slot>& slots) const;
    void plan_owned(Arena& arena);
    void start_gather(Stream stream, Slot& slot);
    void finish_gather(Stream stream, Slot& slot);
    void finish_scatter(Stream stream, Slot& slot);
    void start_scatter(Stream stream, Slot& slot, int unit);
    bool all_even(const UnitPlacement& placed) const;
    bool even(const LeafPlacement& leaf) const { return leaf.divides_evenly(mesh_.data().size()); }

    ParamSpec spec_;
    bool gathers_each_use_;           // ZeRO-3
    bool scatters_each_micro_batch_;  // ZeRO-2, -3
    const Mesh& mesh_;
    bool tokens_are_split_;
    DType param_dtype_;
    DType gradient_dtype_;
    Backend& backend_;
    std::vector<UnitPlacement> placement_;

    std::vector<Slot> weight_slots_;
    std::vector<Slot> gradient_slots_;
    std::vector<LeafTensors>
        weight_shards_;  // [unit]; each [shard_rows, …]: the owned rows, then padding on the last ranks
    std::vector<LeafTensors> gradient_shards_;  // [unit]; likewise
    std::vector<bool> scattered_before_;        // this step's owned gradients of the unit hold something
    bool last_micro_batch_ = true;
    std::vector<OwnedLeaf> owned_;
};

}  // namespace drover
