#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh_cases.h"

namespace drover::test {

/// A way of distributing a run over any suitable number of ranks.
struct MeshMode {
    std::string name;
    Sharding sharding = Sharding::replicated;
    int dcn = 1;
    int tp = 1;
    bool sequence_parallel = false;

    /// Absent if that many ranks cannot be arranged this way.
    std::optional<MeshShape> shape(int ranks) const;
};

/// Data parallelism with every sharding, 2-D with and without sequence parallelism, and copies along dcn.
std::vector<MeshMode> mesh_modes();

/// A case of the matrix of all independent choices.
struct MatrixCase {
    MeshModel model;
    MeshCase mesh_case;
    std::vector<int> choices;  ///< one number per choice

    std::string text() const { return model.name + ", " + mesh_case.text(); }
};

/// Ranks × modes × models × optimizers × recomputing × accumulation × whether batches have equal rows;
/// without combinations that no number of ranks allows.
std::vector<MatrixCase> full_matrix();

/// Pipelines of 2 and 4 ranks × chunks × schedules × what else the mesh does × models × optimizers ×
/// accumulation × recomputing × whether batches have equal rows; on at most 8 ranks.
std::vector<MatrixCase> full_pipeline_matrix();

/// A subset of the cases in which every pair of choices that occurs in some case also occurs.
std::vector<MatrixCase> covering_pairs(const std::vector<MatrixCase>& cases);

/// DROVER_MESH_MATRIX=1 selects all cases, a larger number N every Nth of them, I/N every Nth from the Ith on
/// (1/N to N/N together are all). Without it, all pairs of choices.
std::vector<MatrixCase> chosen_cases(const std::vector<MatrixCase>& all);

}  // namespace drover::test
