#pragma once

#include <filesystem>
#include <functional>

#include "convert/conversion_plan.h"

namespace drover {

struct ConversionLimits {
    std::uint64_t buffer_bytes = std::uint64_t{64} << 20;  ///< of elements in memory at once
    std::uint64_t flush_bytes = std::uint64_t{256} << 20;  ///< lost at most when a conversion is interrupted
};

/// Bytes of elements that are written, and of all.
using ConversionProgress = std::function<void(std::uint64_t written, std::uint64_t total)>;

/// Writes a plan's files into `folder` (created if missing): all of them appear when all are complete. What
/// an interrupted conversion with the same plan and the same source files wrote is used. Error when another
/// process converts into the folder, a name in it is taken, a source's checksum is wrong, the disk is full,
/// or a file does not read back as it was written.
void write_conversion(const ConversionPlan& plan, const TensorSource& source,
                      const std::filesystem::path& folder, const ConversionProgress& progress = {},
                      const ConversionLimits& limits = {});

}  // namespace drover
