#pragma once

#include <cstdint>
#include <string>

#include "core/json.h"

namespace drover {

struct ModelConfig;

/// What a checkpoint records about its run apart from settings and counters, so that a resumed run can tell
/// whether it has changed.
struct RunFacts {
    std::string data{};            ///< kind and hash of the training text ("content 3f…"); empty: unknown
    std::string tokenizer{};       ///< its fingerprint; empty: unknown
    std::int64_t total_batch = 0;  ///< rows of an update over all replicas; 0: unknown

    Json json() const;
    /// From the state in a drover_state.json; facts that are missing or have the wrong type are unknown.
    static RunFacts from(const Json& state);
};

/// One line for each fact that differs; empty if there is none.
std::string changed_facts(const RunFacts& now, const RunFacts& saved);

/// One line for each config value that affects the model's computation and differs.
std::string changed_config(const ModelConfig& now, const ModelConfig& saved);

}  // namespace drover
