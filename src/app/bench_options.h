#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "core/precision.h"
#include "model/config.h"

namespace CLI {
class App;
}

namespace drover {

/// What `drover bench` and `drover bench ops` have in common.
struct BenchShape {
    std::string model = "llama-134m";
    std::string dtype = "bfloat16";
    std::int64_t batch = 4;
    std::int64_t sequence = 512;
    std::string device = "auto";
    std::int64_t threads = 0;  ///< 0: as many as OpenMP would take
    bool json = false;

    void add_to(CLI::App& command);
    ModelConfig config() const;
    /// Everything in the one dtype, as PyTorch trains a model that was cast to it.
    Precision precision() const;
    /// Of the device and with the number of threads that were asked for.
    std::unique_ptr<Backend> backend() const;
};

/// UsageError when flags of `drover bench` itself stand before its sub-command, where they would do nothing.
void refuse_flags_before(const CLI::App& bench, const CLI::App& command);

}  // namespace drover
