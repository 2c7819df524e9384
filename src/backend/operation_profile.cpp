#include "backend/operation_profile.h"

#include <algorithm>

namespace drover {

void OperationProfile::begin(const OperationCost&, Stream) {
    running_ = Stopwatch();
}

void OperationProfile::end(const OperationCost& cost, Stream) {
    const double seconds = running_.seconds();
    auto total = std::find_if(totals_.begin(), totals_.end(), [&](const OperationTotal& known) {
        return known.cost.name == cost.name && known.cost.arithmetic == cost.arithmetic;
    });
    if (total == totals_.end())
        total = totals_.insert(total, {.cost = {.name = cost.name, .arithmetic = cost.arithmetic}});
    total->cost.flops += cost.flops;
    total->cost.bytes += cost.bytes;
    total->seconds += seconds;
    ++total->calls;
}

std::vector<OperationTotal> OperationProfile::totals() const {
    std::vector<OperationTotal> sorted = totals_;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const OperationTotal& a, const OperationTotal& b) { return a.seconds > b.seconds; });
    return sorted;
}

}  // namespace drover
