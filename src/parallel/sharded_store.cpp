#include "parallel/sharded_store.h"

#include <algorithm>
#include <iterator>

#include "backend/backend.h"

namespace drover {
namespace {

/// Rows of a leaf in its storage.
Tensor leaf_rows(const Tensor& storage, const LeafPlacement& leaf) {
    return storage.rows(leaf.storage_row, leaf.rows.count);
}

Shape with_rows(const Shape& shape, std::int64_t rows) {
    Shape result{rows};
    for (int i = 1; i < shape.rank(); ++i) result.append(shape[i]);
    return result;
}

/// Tensors that several units use in turn, by number: each has the size of the largest.
class SharedTensors {
  public:
    Tensor measure(std::size_t index, const Shape& shape) {
        sizes_.resize(std::max(sizes_.size(), index + 1), 0);
        sizes_[index] = std::max(sizes_[index], shape.numel());
        return {};
    }
    Tensor make(std::size_t index, Arena& arena, MemoryUse use, DType dtype, const Shape& shape) {
        tensors_.resize(sizes_.size());
        if (!tensors_[index]) tensors_[index] = arena.make(use, dtype, {sizes_[index]});
        return tensors_[index].rows(0, shape.numel()).view(shape);
    }

  private:
    std::vector<std::int64_t> sizes_;
    std::vector<Tensor> tensors_;
};

}  // namespace

ShardedStore::ShardedStore(ParamSpec spec, Sharding sharding, const Mesh& mesh, bool tokens_are_split,
                           DType param_dtype, DType gradient_dtype, Backend& backend)
    : spec_(std::move(spec)),
      gathers_each_use_(sharding == Sharding::zero3),
      scatters_each_micro_batch_(sharding != Sharding::zero1),
      mesh_(mesh),
      tokens_are_split_(tokens_are_split),
      param_dtype_(param_dtype),
      gradient_dtype_(gradient_dtype),
      backend_(backend),
      placement_(place_parameters(spec_, mesh, true)) {
    require(!mesh.data().idle(), "sharding over a data axis that does nothing");
}

// --------------------------------------------------------------------------------------------------------
// plan

/// The embedding and the head have their own slots; the blocks alternate between two, so that the next one
/// can arrive while this one computes.
int ShardedStore::turn(int unit) const {
    switch (spec_.units[static_cast<std::size_t>(unit)].kind) {
        case UnitSpec::Kind::embedding:
            return 0;
        case UnitSpec::Kind::head:
            return 1;
        case UnitSpec::Kind::block:
            return 2 + unit % 2;
    }
    bug("unknown kind of unit");
}

void ShardedStore::plan_slots(Arena& arena, MemoryUse use, DType dtype, bool units_take_turns, bool gradients,
                              std::vector<Slot>& slots) const {
    slots.clear();
    slots.resize(units_take_turns ? 4 : placement_.size());
    // Units may differ in what they have: a slot has room for the largest of each tensor.
    std::vector<std::vector<SharedTensors>> shared(slots.size());  // [slot][storage]
    for (const bool measures : {true, false})
        for (std::size_t unit = 0; unit < placement_.size(); ++unit) {
            const auto number = static_cast<int>(unit);
            const auto place = static_cast<std::size_t>(units_take_turns ? turn(number) : number);
            const std::vector<StoragePlacement>& storages = placement_[unit].storages;
            shared[place].resize(std::max(shared[place].size(), storages.size()));
            Buffers buffers;
            for (std::size_t i = 0; i < storages.size(); ++i) {
                const StoragePlacement& storage = storages[i];
                SharedTensors& room = shared[place][i];
                const auto make = [&](std::size_t index, MemoryUse of, const Shape& shape) {
                    return measures ? room.measure(index, shape) : room.make(index, arena, of, dtype, shape);
                };
                const bool present = gradients ? storage.trained() : storage.present();
                buffers.storages.push_back(present ? make(0, use, storage.shape) : Tensor());
                auto& padded = buffers.padded.emplace_back();
                auto& incoming = buffers.incoming.emplace_back();
                for (std::size_t j = 0; j < storage.leaves.size(); ++j) {
                    const LeafPlacement& leaf = storage.leaves[j];
                    const bool needed = !gradients || leaf.spec->trained;
                    padded.push_back(
                        needed && !even(leaf)
                            ? make(2 * j + 1, MemoryUse::gathered,
                                   with_rows(storage.shape, leaf.shard_rows * mesh_.data().size()))
                            : Tensor());
                    incoming.push_back(
                        needed && gradients && units_take_turns
                            ? make(2 * j + 2, MemoryUse::gathered, with_rows(storage.shape, leaf.shard_rows))
                            : Tensor());
                }
            }
            if (!measures) slots[place].of_unit[number] = std::move(buffers);
        }
}

void ShardedStore::plan(Arena& arena) {
    plan_slots(arena, gathers_each_use_ ? MemoryUse::gathered : MemoryUse::parameters, param_dtype_,
               gathers_each_use_, false, weight_slots_);
    plan_slots(arena, scatters_each_micro_batch_ ? MemoryUse::gathered : MemoryUse::gradients,
               gradient_dtype_, scatters_each_micro_batch_, true, gradient_slots_);
    plan_owned(arena);
    scattered_before_.assign(placement_.size(), false);
}

void ShardedStore::plan_owned(Arena& arena) {
    owned_.clear();
    weight_shards_.assign(placement_.size(), {});
    gradient_shards_.assign(placement_.size(), {});
    // Where a whole matrix is kept anyway, the owned rows live in it.
    const auto in_whole = [&](const std::vector<Slot>& slots, std::size_t unit, std::size_t storage,
                              const LeafPlacement& leaf) {
        const Buffers& whole = slots[unit].of_unit.at(static_cast<int>(unit));
        return leaf_rows(whole.storages[storage], leaf).rows(leaf.owned.begin, leaf.owned.count);
    };
    const auto for_each_storage = [&](const auto& use) {
        for (std::size_t unit = 0; unit < placement_.size(); ++unit)
            for (std::size_t i = 0; i < placement_[unit].storages.size(); ++i)
                use(unit, i, placement_[unit].storages[i]);
    };
    for_each_storage([&](std::size_t unit, std::size_t i, const StoragePlacement& storage) {
        auto& weights = weight_shards_[unit].emplace_back();
        for (const LeafPlacement& leaf : storage.leaves)
            weights.push_back(gathers_each_use_ ? arena.make(MemoryUse::parameters, param_dtype_,
                                                             with_rows(storage.shape, leaf.shard_rows))
                                                : in_whole(weight_slots_, unit, i, leaf));
    });
    // A unit's gradients are next to each other, so that their memory can be lent in one piece.
    for_each_storage([&](std::size_t unit, std::size_t i, const StoragePlacement& storage) {
        auto& gradients = gradient_shards_[unit].emplace_back();
        for (std::size_t j = 0; j < storage.leaves.size(); ++j) {
            const LeafPlacement& leaf = storage.leaves[j];
            gradients.push_back(!leaf.spec->trained ? Tensor()
                                : scatters_each_micro_batch_ || !even(leaf)
                                    ? arena.make(MemoryUse::gradients, gradient_dtype_,
                                                 with_rows(storage.shape, leaf.shard_rows))
                                    : in_whole(gradient_slots_, unit, i, leaf));
            owned_.push_back(own_leaf(leaf, weight_shards_[unit][i][j].rows(0, leaf.owned.count),
                                      gradients.back().first_rows(leaf.owned.count)));
        }
    });
}

// -----------------------------------------------------------------------------------------------------
// weights

void ShardedStore::gather(Stream stream, int unit) {
    Slot& slot = weight_slots_[static_cast<std::size_t>(weight_slot(unit))];
    if (slot.unit == unit) return;
    require(!slot.in_use, "a unit is gathered into a buffer that another one still uses");
    finish_gather(stream, slot);  // of a unit that was gathered and never used
    slot.unit = unit;
    mesh_.data().together(stream, [&] { start_gather(stream, slot); });
}

void ShardedStore::start_gather(Stream stream, Slot& slot) {
    const auto unit = static_cast<std::size_t>(slot.unit);
    const UnitPlacement& placed = placement_[unit];
    const Buffers& whole = slot.buffers();
    for (std::size_t i = 0; i < placed.storages.size(); ++i)
        for (std::size_t j = 0; j < placed.storages[i].leaves.size(); ++j) {
            const LeafPlacement& leaf = placed.storages[i].leaves[j];
            if (slot.has_frozen && !leaf.spec->trained) continue;
            const Tensor& shard = weight_shards_[unit][i][j];
            if (even(leaf)) {
                slot.pending.push_back(
                    mesh_.data().start_all_gather(stream, shard, leaf_rows(whole.storages[i], leaf)));
                continue;
            }
            const Tensor& padded = whole.padded[i][j];
            const Tensor place = padded.rows(mesh_.data().rank() * leaf.shard_rows, leaf.shard_rows);
            backend_.copy(stream, shard.rows(0, leaf.owned.count), place.rows(0, leaf.owned.count));
            slot.pending.push_back(mesh_.data().start_all_gather(stream, place, padded));
        }
}

void ShardedStore::finish_gather(Stream stream, Slot& slot) {
    if (slot.pending.empty()) return;
    for (Pending& pending : slot.pending) pending.wait(stream);
    slot.pending.clear();
    const UnitPlacement& placed = placement_[static_cast<std::size_t>(slot.unit)];
    for (std::size_t i = 0; i < placed.storages.size(); ++i)
        for (std::size_t j = 0; j < placed.storages[i].leaves.size(); ++j) {
            const LeafPlacement& leaf = placed.storages[i].leaves[j];
            if (!even(leaf) && (leaf.spec->trained || !slot.has_frozen))
                backend_.copy(stream, slot.buffers().padded[i][j].rows(0, leaf.rows.count),
                              leaf_rows(slot.buffers().storages[i], leaf));
        }
    slot.has_frozen = !gathers_each_use_;
}

UnitTensors ShardedStore::get(Stream stream, int unit) {
    gather(stream, unit);
    Slot& slot = weight_slots_[static_cast<std::size_t>(weight_slot(unit))];
    finish_gather(stream, slot);
    slot.in_use = true;
    return slot.buffers().storages;
}

void ShardedStore::release(Stream, int unit) {
    weight_slots_[static_cast<std::size_t>(weight_slot(unit))].in_use = false;
}

void ShardedStore::weights_changed(Written which) {
    for (Slot& slot : weight_slots_) {
        require(!slot.in_use && slot.pending.empty(), "weights change while they are in use");
        slot.unit = -1;
        if (which == Written::all) slot.has_frozen = false;
    }
}

// ---------------------------------------------------------------------------------------------------
// gradients

void ShardedStore::begin_backward(std::span<const int> units, PlaceInStep place) {
    last_micro_batch_ = place.last;
    if (!place.first) return;
    for (const int unit : units) {
        scattered_before_[static_cast<std::size_t>(unit)] = false;
        // A shared buffer belongs to another unit until its scatter has finished.
        if (!scatters_each_micro_batch_) gradient_slots_[static_cast<std::size_t>(unit)].unit = -1;
    }
}

UnitGradients ShardedStore::grad(Stream stream, int unit) {
    Slot& slot = gradient_slots_[static_cast<std::size_t>(gradient_slot(unit))];
    finish_scatter(stream, slot);
    // A buffer that this unit has begun, or (ZeRO-1) that keeps its sums over the step's micro-batches, is
    // added to.
    const bool accumulate = slot.unit == unit && (slot.in_use || !scatters_each_micro_batch_);
    slot.unit = unit;
    slot.in_use = true;
    return {.tensors = slot.buffers().storages, .accumulate = accumulate};
}

void ShardedStore::reduce(Stream stream, int unit) {
    Slot& slot = gradient_slots_[static_cast<std::size_t>(gradient_slot(unit))];
    slot.in_use = false;
    if (!scatters_each_micro_batch_ && !last_micro_batch_) return;

    const UnitPlacement& placed = placement_[static_cast<std::size_t>(unit)];
    start_tensor_parallel_sums(stream, mesh_, tokens_are_split_, placed, slot.buffers().storages,
                               slot.pending);
    // Copies into padded buffers must see the sums over tp, and so must the scatter.
    if (!all_even(placed))
        for (Pending& sum : slot.pending) sum.wait(stream);
    for (const Pending& sum : slot.pending) mesh_.data().follow(sum);
    mesh_.data().together(stream, [&] { start_scatter(stream, slot, unit); });
}

bool ShardedStore::all_even(const UnitPlacement& placed) const {
    for (const StoragePlacement& storage : placed.storages)
        for (const LeafPlacement& leaf : storage.leaves)
            if (leaf.spec->trained && !even(leaf)) return false;
    return true;
}

void ShardedStore::start_scatter(Stream stream, Slot& slot, int unit) {
    const UnitPlacement& placed = placement_[static_cast<std::size_t>(unit)];
    const Buffers& buffers = slot.buffers();
    const bool add = scattered_before_[static_cast<std::size_t>(unit)];
    for (std::size_t i = 0; i < placed.storages.size(); ++i)
        for (std::size_t j = 0; j < placed.storages[i].leaves.size(); ++j) {
            const LeafPlacement& leaf = placed.storages[i].leaves[j];
            if (!leaf.spec->trained) continue;
            const Tensor& shard = gradient_shards_[static_cast<std::size_t>(unit)][i][j];
            Tensor whole = leaf_rows(buffers.storages[i], leaf);
            if (!even(leaf)) {
                const Tensor& padded = buffers.padded[i][j];
                backend_.copy(stream, whole, padded.rows(0, leaf.rows.count));
                backend_.run(stream, Fill{padded.rows(leaf.rows.count, padded.size(0) - leaf.rows.count), 0});
                whole = padded;
            }
            slot.pending.push_back(
                mesh_.data().start_reduce_scatter(stream, whole, add ? buffers.incoming[i][j] : shard));
        }
}

void ShardedStore::finish_scatter(Stream stream, Slot& slot) {
    if (slot.pending.empty()) return;
    for (Pending& pending : slot.pending) pending.wait(stream);
    slot.pending.clear();
    const auto unit = static_cast<std::size_t>(slot.unit);
    if (scattered_before_[unit])
        for (std::size_t i = 0; i < gradient_shards_[unit].size(); ++i)
            for (std::size_t j = 0; j < gradient_shards_[unit][i].size(); ++j)
                if (gradient_shards_[unit][i][j])
                    backend_.run(stream, Add{.into = gradient_shards_[unit][i][j],
                                             .x = slot.buffers().incoming[i][j]});
    scattered_before_[unit] = true;
}

void ShardedStore::finish_gradients(Stream stream) {
    for (Slot& slot : gradient_slots_) finish_scatter(stream, slot);
    if (mesh_.dcn().size() > 1) {
        std::vector<Pending> pending;
        mesh_.dcn().together(stream, [&] {
            for (const OwnedLeaf& leaf : owned_)
                if (leaf.gradient)
                    pending.push_back(mesh_.dcn().start_all_reduce(stream, leaf.gradient, Reduction::sum));
        });
        for (Pending& sum : pending) sum.wait(stream);
    }
}

std::vector<Tensor> ShardedStore::gradient_memory(int unit) const {
    std::vector<Tensor> present;
    const auto add = [&](const std::vector<Tensor>& tensors) {
        std::ranges::copy_if(tensors, std::back_inserter(present),
                             [](const Tensor& gradient) { return static_cast<bool>(gradient); });
    };
    const auto index = static_cast<std::size_t>(unit);
    if (scatters_each_micro_batch_)
        for (const std::vector<Tensor>& shards : gradient_shards_[index]) add(shards);
    else
        add(gradient_slots_[index].of_unit.at(unit).storages);
    return present;
}

}  // namespace drover
