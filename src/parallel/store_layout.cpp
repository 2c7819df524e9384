#include "parallel/store_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/arena.h"
#include "core/number_text.h"

namespace drover {
namespace {

LeafPlacement place_leaf(const LeafSpec& leaf, const Mesh& mesh, bool sharded, bool is_copy) {
    const std::int64_t rows = leaf.shape[0], columns = leaf.shape.numel() / rows;
    LeafPlacement placed{.spec = &leaf, .rows = {0, rows}, .columns = {0, columns}};
    const int tp = mesh.tp().size();
    bool first_copy = mesh.tp().rank() == 0;  // of a leaf that every rank of tp holds
    if (leaf.split != Split::none) {
        const std::int64_t parts =
            leaf.largest_split > 0 ? std::min<std::int64_t>(tp, leaf.largest_split) : tp;
        const std::int64_t copies = tp / parts;
        Range& split = leaf.split == Split::rows ? placed.rows : placed.columns;
        split = split_range(split.count, parts, mesh.tp().rank() / copies);
        placed.has_copies = copies > 1;
        first_copy = mesh.tp().rank() % copies == 0;
    }
    const int owners = sharded ? mesh.data().size() : 1;
    placed.shard_rows = part_size(placed.rows.count, owners);
    placed.owned = split_range(placed.rows.count, owners, sharded ? mesh.data().rank() : 0);
    const bool first_replica = sharded ? mesh.dcn().rank() == 0 : mesh.replicas().rank() == 0;
    placed.counted_in_stage = first_copy && first_replica;
    placed.counted = placed.counted_in_stage && !is_copy;
    return placed;
}

StoragePlacement place_storage(const StorageSpec& storage, const Mesh& mesh, bool sharded, bool is_copy) {
    StoragePlacement placed;
    std::int64_t rows = 0;
    for (const LeafSpec& leaf : storage.leaves) {
        placed.leaves.push_back(place_leaf(leaf, mesh, sharded, is_copy));
        placed.leaves.back().storage_row = rows;
        rows += placed.leaves.back().rows.count;
    }
    if (placed.present()) {
        placed.shape = Shape{rows};
        if (storage.leaves[0].shape.rank() == 2) placed.shape.append(placed.leaves[0].columns.count);
    }
    return placed;
}

}  // namespace

bool StoragePlacement::trained() const {
    return std::any_of(leaves.begin(), leaves.end(),
                       [](const LeafPlacement& leaf) { return leaf.spec->trained; });
}

std::string_view name_of(Sharding sharding) {
    switch (sharding) {
        case Sharding::replicated:
            return "replicated (DDP)";
        case Sharding::zero1:
            return "ZeRO-1";
        case Sharding::zero2:
            return "ZeRO-2";
        case Sharding::zero3:
            return "ZeRO-3 (FSDP)";
    }
    bug("unknown sharding");
}

std::vector<UnitPlacement> place_parameters(const ParamSpec& spec, const Mesh& mesh, bool sharded) {
    std::vector<UnitPlacement> units;
    for (const UnitSpec& unit : spec.units) {
        UnitPlacement& placed = units.emplace_back();
        for (const StorageSpec& storage : unit.storages)
            placed.storages.push_back(place_storage(storage, mesh, sharded, unit.is_copy));
    }
    return units;
}

std::string placement_table(const ParamSpec& spec, const Mesh& mesh, Sharding sharding, DType param_dtype) {
    const MeshShape& shape = mesh.shape();
    std::string text =
        fmt::format("Mesh: pp {} × dcn {} × data {} × {}tp {} = {} ranks; this is rank {}; {}\n", shape.pp,
                    shape.dcn, shape.data, shape.cp > 1 ? fmt::format("cp {} × ", shape.cp) : "", shape.tp,
                    shape.ranks(), mesh.rank(), name_of(sharding));
    text += fmt::format("  {:<50}{:>18}  {:<10}{:>18}{:>18}{:>12}\n", "parameter", "global", "tp split",
                        "held here", "owned here", "bytes");
    const bool sharded = sharding != Sharding::replicated;
    const std::vector<UnitPlacement> placement = place_parameters(spec, mesh, sharded);
    static constexpr std::string_view split_names[] = {"none", "rows", "columns"};
    std::size_t total = 0, blocks = 0, place_for_more = 0;
    for (std::size_t unit = 0; unit < spec.units.size(); ++unit) {
        // All blocks look like the first one.
        const bool is_block = spec.units[unit].kind == UnitSpec::Kind::block;
        const bool is_later_block = is_block && blocks > 0;
        blocks += is_block;
        for (const StoragePlacement& storage : placement[unit].storages)
            for (const LeafPlacement& leaf : storage.leaves) {
                const auto shape_of = [&](std::int64_t rows) {
                    return leaf.spec->shape.rank() == 1 ? Shape{rows} : Shape{rows, leaf.columns.count};
                };
                const Shape held = shape_of(leaf.rows.count), owned = shape_of(leaf.owned.count);
                const Shape& kept = sharding == Sharding::zero3 ? owned : held;
                const std::size_t bytes = static_cast<std::size_t>(kept.numel()) * size_of(param_dtype);
                total += bytes;
                if (is_later_block) continue;
                text += fmt::format("  {:<50}{:>18}  {:<10}{:>18}{:>18}{:>12}\n", leaf.spec->name,
                                    leaf.spec->shape.text(), split_names[static_cast<int>(leaf.spec->split)],
                                    held.text(), owned.text(), bytes_text(bytes));
            }
        if (is_block && !is_later_block) place_for_more = text.size();
    }
    if (blocks > 1) text.insert(place_for_more, fmt::format("  … and {} more blocks like it\n", blocks - 1));
    return text + fmt::format("  Parameters on this rank: {}\n", bytes_text(total));
}

}  // namespace drover
