#pragma once

#include <cstdint>
#include <string>

#include "model/adapters.h"

namespace drover {

class Command;

struct ModelConfig;

/// Options of `drover bench` for low-rank adapters.
struct BenchAdapters {
    std::int64_t rank = 0;  ///< 0: the whole model is trained
    std::string target_modules = "all-linear";
    double dropout = 0;
    bool compare = false;  ///< also with a step that trains everything, and one that trains next to nothing

    void add_to(const Command& command);
    /// UsageError if the model has experts, or none of the modules.
    Adapters of(const ModelConfig& config) const;
    /// Trains the first block's first norm alone: forward and backward pass through the whole model, as they
    /// do for adapters.
    static Adapters next_to_nothing();
};

}  // namespace drover
