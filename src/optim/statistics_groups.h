#pragma once

#include <span>
#include <vector>

#include "parallel/param_store.h"

namespace drover {

/// A matrix of which mean squared gradients are kept by row and by column: a leaf of two dimensions, or the
/// leaves of a statistics group stacked by rows.
struct FactoredMatrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};

/// How leaves make up matrices, and which of them are clipped together. It follows from the specs of the
/// leaves alone, so it is the same on every rank.
struct StatisticsGroups {
    static constexpr std::size_t no_matrix = static_cast<std::size_t>(-1);

    struct Leaf {
        std::size_t matrix = no_matrix;  ///< index; vectors have none
        std::int64_t first_row = 0;      ///< of the leaf in its matrix
        std::size_t clip_group = 0;      ///< index
    };

    std::vector<FactoredMatrix> matrices;
    std::vector<std::int64_t> clip_elements;  ///< per clip group, over the whole leaves
    std::vector<Leaf> leaves;                 ///< in the order of the updated leaves

    explicit StatisticsGroups(std::span<const OwnedLeaf* const> updated);
};

}  // namespace drover
