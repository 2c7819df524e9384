#include "backend/operation_profile.h"

#include <algorithm>

#include "backend/backend.h"

namespace drover {

OperationProfile::OperationProfile(Backend& backend) : backend_(backend) {
    backend_.observe(this);
}

OperationProfile::~OperationProfile() {
    backend_.observe(nullptr);
    backend_.forget_marks();
}

void OperationProfile::begin(const OperationCost&, Stream stream) {
    running_since_ = backend_.mark(stream);
}

void OperationProfile::end(const OperationCost& cost, Stream stream) {
    calls_.push_back({.cost = cost, .begin = running_since_, .end = backend_.mark(stream)});
}

std::vector<OperationTotal> OperationProfile::totals() const {
    std::vector<OperationTotal> totals;
    for (const Call& call : calls_) {
        auto total = std::find_if(totals.begin(), totals.end(), [&](const OperationTotal& known) {
            return known.cost.name == call.cost.name && known.cost.arithmetic == call.cost.arithmetic;
        });
        if (total == totals.end())
            total =
                totals.insert(total, {.cost = {.name = call.cost.name, .arithmetic = call.cost.arithmetic}});
        total->cost.flops += call.cost.flops;
        total->cost.bytes += call.cost.bytes;
        total->seconds += backend_.seconds_between(call.begin, call.end);
        ++total->calls;
    }
    std::stable_sort(totals.begin(), totals.end(),
                     [](const OperationTotal& a, const OperationTotal& b) { return a.seconds > b.seconds; });
    return totals;
}

}  // namespace drover
