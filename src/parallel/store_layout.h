#pragma once

#include <vector>

#include "core/range.h"
#include "parallel/mesh.h"
#include "parallel/param_spec.h"

namespace drover {

/// How parameters, gradients and optimizer state are spread over the data axis.
enum class Sharding : std::uint8_t {
    replicated,  ///< DDP: everything whole everywhere
    zero1,       ///< optimizer state sharded
    zero2,       ///< gradients too, as they are produced
    zero3,       ///< parameters too, gathered unit by unit: FSDP
};

std::string_view name_of(Sharding sharding);

/// A leaf on this rank: its tensor-parallel slice, and the rows of that slice that this rank owns.
struct LeafPlacement {
    const LeafSpec* spec = nullptr;
    Range rows;                    ///< of the global leaf: this rank's slice
    Range columns;                 ///< likewise (a vector has one column)
    std::int64_t storage_row = 0;  ///< where the slice begins in its storage
    std::int64_t shard_rows = 0;   ///< rows per rank of the data axis, rounded up
    Range owned;                   ///< rows of the slice that this rank owns
    bool has_copies = false;  ///< neighbours along tp hold the same slice of a leaf that is otherwise split
    bool counted = true;      ///< this rank's owned part counts in sums over the whole model
    bool counted_in_stage = true;  ///< likewise in sums over this pipeline stage

    bool divides_evenly(int data_ranks) const { return shard_rows * data_ranks == rows.count; }
};

struct StoragePlacement {
    Shape shape;  ///< on this rank; rank 0 (a scalar) when the storage is absent
    std::vector<LeafPlacement> leaves;

    bool present() const { return !leaves.empty(); }
    /// Whether it has a gradient.
    bool trained() const;
};

struct UnitPlacement {
    std::vector<StoragePlacement> storages;
};

/// Where everything is on this rank. `spec` must outlive it. With `sharded`, rows are owned over the data
/// axis.
std::vector<UnitPlacement> place_parameters(const ParamSpec& spec, const Mesh& mesh, bool sharded);

/// A start-up table: the axes, then every leaf's global shape, split, owned part and bytes on this rank.
/// Blocks with the same layout are listed once.
std::string placement_table(const ParamSpec& spec, const Mesh& mesh, Sharding sharding, DType param_dtype);

}  // namespace drover
