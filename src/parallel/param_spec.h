#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace drover {

/// Which dimension of a leaf is split over the tensor-parallel axis.
enum class Split : std::uint8_t { none, rows, columns };

/// How a leaf starts when a model is made from scratch.
enum class Initial : std::uint8_t {
    normal,
    ones,
    zeros,
    adapter,          ///< U(±1/√columns): the A of an adapter
    standard_normal,  ///< N(0,1): the B of the embedding's adapter
};

/// When a rank's gradient of a leaf is only a part, to be summed over the tensor-parallel axis.
enum class PartialGradient : std::uint8_t {
    never,
    when_tokens_are_split,  ///< it is a sum over the tokens that the rank holds between blocks (a norm's)
    always,                 ///< it is a sum over the rank's own heads (a norm of each head)
};

/// A leaf is one Hugging Face tensor: the unit of init, weight decay, gradient norm, optimizer statistics and
/// checkpoints. Shapes are global.
struct LeafSpec {
    std::string name;  ///< "model.layers.0.self_attn.q_proj.weight"
    Shape shape;       ///< [out,in], or [n]
    Split split = Split::none;
    /// Most parts that the split dimension can be cut into (the number of key/value heads); 0: any number.
    /// With more ranks than parts, neighbours hold copies of the same part.
    std::int64_t largest_split = 0;
    PartialGradient partial_gradient = PartialGradient::never;
    bool decayed = true;  ///< takes weight decay
    Initial initial = Initial::normal;
    /// Leaves of one group are rows of one matrix to an optimizer that keeps statistics per row and column
    /// (an expert's gate and up); empty: the leaf alone.
    std::string statistics_group;
    /// The tensor of transformers' own that holds this leaf, perhaps with others (all experts' gates and
    /// ups): drawn as one, numbered as one in optimizer.pt, and clipped as one by Adafactor. Empty: the leaf
    /// is a tensor there too.
    std::string fused_tensor;
    std::int64_t zeroed_row = -1;  ///< this row starts at zero and gets no gradient (the padding token's)
    /// It gets a gradient and is updated. A frozen leaf has neither a gradient nor an optimizer's state.
    bool trained = true;
    /// Of an adapter (model/adapters.h): the leaf that it adapts. Empty: a leaf of the model itself.
    std::string adapted{};

    bool is_adapter() const { return !adapted.empty(); }
};

/// A storage is one matrix (or vector) in the layout that operations use: leaves of equal width, stacked by
/// rows (q‖k‖v, gate‖up).
struct StorageSpec {
    std::vector<LeafSpec> leaves;

    bool has_trained_leaf() const {
        for (const LeafSpec& leaf : leaves)
            if (leaf.trained) return true;
        return false;
    }
};

/// A unit is gathered and released as a whole: the embedding, one decoder block, or the head.
struct UnitSpec {
    enum class Kind : std::uint8_t { embedding, block, head };

    std::string name;  ///< for reports: "embedding", "block 3"
    Kind kind = Kind::block;
    std::vector<StorageSpec> storages;  ///< a storage without leaves is absent (an optional bias)
    /// Another pipeline stage has the same unit, and its copy is the one that counts and is saved: a tied
    /// embedding in the last stage.
    bool is_copy = false;

    bool has_trained_leaf() const {
        for (const StorageSpec& storage : storages)
            if (storage.has_trained_leaf()) return true;
        return false;
    }
};

/// All parameters of a model, or of a pipeline rank's part of it, in the order in which the forward pass uses
/// them.
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
