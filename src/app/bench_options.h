#pragma once

#include <memory>
#include <string>

#include "core/precision.h"

namespace drover {

class Backend;
class Command;

struct ModelConfig;

/// Options shared by `drover bench` and `drover bench ops`.
struct BenchShape {
    std::string model = "llama-134m";
    std::string dtype = "bfloat16";
    std::int64_t batch = 4;
    std::int64_t sequence = 512;
    std::string device = "auto";
    std::int64_t threads = 0;  ///< 0: OpenMP's default
    bool json = false;

    void add_to(const Command& command);
    ModelConfig config() const;
    /// Everything in one dtype, as when PyTorch trains a model that was cast to it.
    Precision precision() const;
    /// With the requested device and number of threads.
    std::unique_ptr<Backend> backend() const;
};

/// UsageError if flags of `drover bench` itself precede its sub-command, where they would have no effect.
void refuse_flags_before(const Command& bench, const Command& command);

}  // namespace drover
