#include "train/callbacks/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/number_text.h"

namespace drover {

void RunSummary::on_step_end(TrainerView& view, const StepReport& step) {
    seconds_.push_back(step.seconds);
    samples_ += step.samples;
    tokens_ += step.tokens;
    parameters_ = view.parameters;
}

double RunSummary::median_step_seconds() const {
    if (seconds_.empty()) return 0;
    std::vector<double> sorted(seconds_.begin() + (seconds_.size() > 1 ? 1 : 0), seconds_.end());
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

namespace {

/// "0.8712", "14,050".
std::string rate_text(double rate) {
    return rate < 1000 ? fmt::format("{:.4g}", rate) : with_thousands(std::llround(rate));
}

}  // namespace

std::string RunSummary::text() const {
    if (seconds_.empty()) return {};
    const double total = std::max(std::accumulate(seconds_.begin(), seconds_.end(), 0.0), 1e-9);
    return fmt::format(
        "Parameters: {} in total, {} active per token.\n"
        "Steps: {}, median {:.4g} s per step.\n"
        "Speed: {} sequences/s, {} tokens/s (time in steps only).\n",
        with_thousands(parameters_.total), with_thousands(parameters_.active),
        with_thousands(static_cast<std::int64_t>(seconds_.size())), median_step_seconds(),
        rate_text(static_cast<double>(samples_) / total), rate_text(static_cast<double>(tokens_) / total));
}

}  // namespace drover
