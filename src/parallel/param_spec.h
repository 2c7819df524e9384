#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace drover {

/// Which dimension of a leaf is split over the tensor-parallel axis.
enum class Split : std::uint8_t { none, rows, columns };

/// How a leaf starts when a model is made from scratch.
enum class Initial : std::uint8_t { normal, ones, zeros };

/// A leaf is one Hugging Face tensor: the unit of init, weight decay, gradient norm, optimizer statistics and
/// checkpoints. Shapes are global.
struct LeafSpec {
    std::string name;  ///< "model.layers.0.self_attn.q_proj.weight"
    Shape shape;       ///< [out,in], or [n]
    Split split = Split::none;
    /// Most parts that the split dimension can be cut into (the number of key/value heads); 0: any number.
    /// With more ranks than parts, neighbours hold copies of the same part.
    std::int64_t largest_split = 0;
    /// Its gradient is a sum over the tokens that a rank holds between the seams of tensor parallelism (a
    /// norm's weight), and so is only partial when those are split.
    bool gradient_over_held_tokens = false;
    bool decayed = true;  ///< takes weight decay
    Initial initial = Initial::normal;
    /// Leaves of one group are rows of one matrix to an optimizer that keeps statistics per row and column
    /// (an expert's gate and up); empty: the leaf alone.
    std::string statistics_group;
    /// Leaves of one group are one tensor to an optimizer that clips updates by tensor (all experts' gates
    /// and ups); empty: its statistics group.
    std::string clip_group;
    std::int64_t zeroed_row = -1;  ///< this row starts at zero and gets no gradient (the padding token's)
};

/// A storage is one matrix (or vector) in the layout that operations use: leaves of equal width, stacked by
/// rows (q‖k‖v, gate‖up).
struct StorageSpec {
    std::vector<LeafSpec> leaves;
};

/// A unit is gathered and released as a whole: the embedding, one decoder block, or the head.
struct UnitSpec {
    std::string name;                   ///< for reports: "embedding", "block 3"
    std::vector<StorageSpec> storages;  ///< a storage without leaves is absent (an optional bias)
};

/// All parameters of a model, in the order in which the forward pass uses them.
struct ParamSpec {
    std::vector<UnitSpec> units;

    /// Calls visit(leaf) for every leaf.
    template <class Visit>
    void for_each_leaf(Visit&& visit) const {
        for (const UnitSpec& unit : units)
            for (const StorageSpec& storage : unit.storages)
                for (const LeafSpec& leaf : storage.leaves) visit(leaf);
    }

    std::int64_t parameter_count() const {
        std::int64_t count = 0;
        for_each_leaf([&](const LeafSpec& leaf) { count += leaf.shape.numel(); });
        return count;
    }
};

}  // namespace drover
