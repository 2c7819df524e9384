#pragma once

#include "core/json.h"
#include "model/config.h"

namespace drover {

/// What a checkpoint remembers of its run beside settings and counters, so that a run that goes on from it
/// sees whether it is another one.
struct RunFacts {
    std::string data{};            ///< kind and hash of the training text ("content 3f…"); empty: not known
    std::string tokenizer{};       ///< its fingerprint; empty: not known
    std::int64_t total_batch = 0;  ///< rows of an update over all replicas; 0: not known

    Json json() const;
    /// Of the state in a drover_state.json; what is not there, or is of another type, is not known.
    static RunFacts from(const Json& state);
};

/// A line for each fact that is not what it was; empty when there is none.
std::string changed_facts(const RunFacts& now, const RunFacts& saved);

/// A line for each value of the config that the model computes with and that is not what it was.
std::string changed_config(const ModelConfig& now, const ModelConfig& saved);

}  // namespace drover
