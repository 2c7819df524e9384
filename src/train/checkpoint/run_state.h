#pragma once

#include <cstdint>
#include <optional>

#include "core/json.h"

namespace drover {

/// What updates since the last record say of the predictions (UpdateResult), where they are counted.
struct PredictionSums {
    double entropy_sum = 0, accuracy_sum = 0;
    std::int64_t micro_batches = 0;
};

/// The loop's progress beyond what trainer_state.json keeps: with it, a resumed run counts and logs as if it
/// had not been stopped.
struct LoopState {
    std::int64_t step = 0;            ///< global_step
    std::int64_t schedule_steps = 0;  ///< updates that were not skipped; the learning rate follows them
    std::int64_t last_logged_step = 0;
    float loss_sum = 0;  ///< since the last record
    PredictionSums predicted{};
    double total_loss = 0;  ///< until the last record

    // Position in the data: the first `samples` of the epoch's order were used, over all replicas.
    std::int64_t epoch = 0;
    std::int64_t samples = 0;
    std::uint64_t seed = 0;
    std::optional<std::uint64_t> data_seed;

    Json json() const;
    /// nlohmann's exception when something is missing or has the wrong type.
    static LoopState from(const Json& json);
};

/// What an engine keeps apart from tensors.
struct EngineState {
    struct Scaler {
        float scale = 0;
        int good_steps = 0;
    };

    std::int64_t updates = 0;      ///< not counting skipped ones
    std::optional<Scaler> scaler;  ///< of the loss, where gradients are scaled

    Json json() const;
    static EngineState from(const Json& json);
};

/// The run's state in drover_state.json.
struct RunState {
    std::optional<LoopState> loop;  ///< absent in a checkpoint that was made of another program's
    EngineState engine;

    /// Error (naming `where`) when it is not such a state.
    static RunState parse(const Json& json, std::string_view where);
};

}  // namespace drover
