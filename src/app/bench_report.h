#pragma once

#include <span>
#include <string>

#include "backend/machine_peaks.h"
#include "backend/operation_profile.h"
#include "core/json.h"

namespace drover {

/// Example: "fp32 226 GFLOP/s, bf16 450 GFLOP/s, copy 41.2 GB/s"
std::string text_of(const MachinePeaks& peaks);
Json json_of(const MachinePeaks& peaks);

/// One line per operation: calls, time, share of `whole_seconds`, rate, and share of the machine's peak; then
/// the time spent outside operations.
std::string operations_table(std::span<const OperationTotal> operations, double whole_seconds,
                             const MachinePeaks& peaks);
Json operations_json(std::span<const OperationTotal> operations, double whole_seconds,
                     const MachinePeaks& peaks);

/// Example: "412.1 GFLOP/s" or "31.4 GB/s"
std::string text_of(const OperationRate& rate);

}  // namespace drover
