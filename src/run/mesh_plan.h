#pragma once

#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/store_layout.h"
#include "parallel/schedule/step_schedule.h"
#include "run/machine_place.h"

namespace drover {

struct MeshSettings;
struct ModelConfig;

/// The mesh of a run's processes and what each process keeps: MeshSettings applied to a number of processes.
struct MeshPlan {
    MeshShape shape;
    Sharding sharding = Sharding::replicated;
    /// Between the seams of tensor parallelism, each rank holds its share of the tokens.
    enum class SequenceParallel : std::uint8_t {
        no,
        where_possible,  ///< part of 2-D sharding; rows that cannot be split stay whole
        required,        ///< Error if rows cannot be split
    };
    SequenceParallel sequence_parallel = SequenceParallel::no;
    int key_value_copies = 1;
    PipelineSettings pipeline{};     ///< see MeshSettings
    bool balances_pipeline = false;  ///< see MeshSettings
    bool batch_is_global = false;    ///< see MeshSettings
    std::vector<std::string> explanations{};

    int replicas() const { return shape.dcn * shape.data; }
    /// Of the pipeline, on all its ranks.
    int stages() const { return shape.pp * pipeline.chunks; }
    /// Whether tokens are split, for rows of this length.
    bool splits_tokens(std::int64_t row_length) const;
};

/// The mesh of `ranks` processes. UsageError if the settings do not suit the model; Error if the number of
/// processes does not fit.
MeshPlan plan_mesh(const MeshSettings& settings, const ModelConfig& config, int ranks,
                   const MachinePlace& machine);

}  // namespace drover
