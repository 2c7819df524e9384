#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh_cases.h"

namespace drover::test {

/// A way of spreading a run over any suitable number of ranks.
struct MeshMode {
    std::string name;
    Sharding sharding = Sharding::replicated;
    int dcn = 1;
    int tp = 1;
    bool sequence_parallel = false;

    /// Absent when that many ranks cannot stand so.
    std::optional<MeshShape> shape(int ranks) const;
};

/// Data parallelism with every sharding, 2-D with and without sequence parallelism, and copies along dcn.
std::vector<MeshMode> mesh_modes();

/// A case of the matrix of everything that is chosen independently.
struct MatrixCase {
    MeshModel model;
    MeshCase mesh_case;
    std::vector<int> choices;  ///< one number per thing that is chosen

    std::string text() const { return model.name + ", " + mesh_case.text(); }
};

/// Ranks × modes × models × optimizers × recomputing × accumulation × whether batches have equal rows;
/// without what no number of ranks allows.
std::vector<MatrixCase> full_matrix();

/// A few of the cases, in which every two choices that some case has together occur together.
std::vector<MatrixCase> covering_pairs(const std::vector<MatrixCase>& cases);

}  // namespace drover::test
