#pragma once

#include <vector>

#include "backend/operation_observer.h"
#include "core/stopwatch.h"

namespace drover {

/// All operations of one name, summed up.
struct OperationTotal {
    OperationCost cost;  ///< sums over the calls
    std::int64_t calls = 0;
    double seconds = 0;
};

/// Sums up what operations cost and took, by name and arithmetic. For devices that run inline: times are the
/// host's.
class OperationProfile final : public OperationObserver {
  public:
    void begin(const OperationCost& cost, Stream stream) override;
    void end(const OperationCost& cost, Stream stream) override;

    /// Longest first.
    std::vector<OperationTotal> totals() const;

  private:
    std::vector<OperationTotal> totals_;
    Stopwatch running_;
};

}  // namespace drover
