#pragma once

#include <string>
#include <vector>

#include "args/parse_arguments.h"
#include "model/config.h"
#include "parallel/store_layout.h"
#include "run/machine_place.h"

namespace drover {

/// What the arguments say about several processes: how they stand and what each keeps.
struct MeshSettings {
    MeshShape shape;
    Sharding sharding = Sharding::replicated;
    /// Between the seams of tensor parallelism, each rank holds its share of the tokens.
    enum class SequenceParallel : std::uint8_t {
        no,
        where_possible,  ///< it belongs to 2-D sharding; rows that cannot be split stay whole
        asked_for,       ///< Error where rows cannot be split
    };
    SequenceParallel sequence_parallel = SequenceParallel::no;
    int key_value_copies = 1;
    /// --per_device_train_batch_size and --per_device_eval_batch_size are those of all replicas together.
    bool batch_is_global = false;
    std::vector<std::string> explanations{};

    int replicas() const { return shape.dcn * shape.data; }
    /// Whether tokens are split, for rows of this length.
    bool splits_tokens(std::int64_t row_length) const;
};

/// The mesh of `ranks` processes. UsageError when the arguments contradict each other or ask for what is not
/// there; Error when the number of processes does not fit.
MeshSettings mesh_settings(const RunArguments& run, const ModelConfig& config, int ranks,
                           const MachinePlace& machine);

}  // namespace drover
