#pragma once

#include <vector>

#include "backend/operation_observer.h"

namespace drover {

class Backend;

/// All operations of one name, summed up.
struct OperationTotal {
    OperationCost cost;  ///< sums over the calls
    std::int64_t calls = 0;
    double seconds = 0;
};

/// Sums up the costs and times of operations, by name and arithmetic. Observes its backend, which must
/// outlive it and have no other observer, as long as it lives.
class OperationProfile final : public OperationObserver {
  public:
    explicit OperationProfile(Backend& backend);
    ~OperationProfile() override;
    OperationProfile(const OperationProfile&) = delete;
    OperationProfile& operator=(const OperationProfile&) = delete;

    void begin(const OperationCost& cost, Stream stream) override;
    void end(const OperationCost& cost, Stream stream) override;

    /// Longest first. Waits until all observed operations are done.
    std::vector<OperationTotal> totals() const;

  private:
    struct Call {
        OperationCost cost;
        std::size_t begin, end;  // marks
    };
    Backend& backend_;
    std::size_t running_since_ = 0;
    std::vector<Call> calls_;
};

}  // namespace drover
