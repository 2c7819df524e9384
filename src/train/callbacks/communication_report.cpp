#include "train/callbacks/communication_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace drover {

void CommunicationReport::on_step_begin(TrainerView&) {
    begin_ = read_();
}

void CommunicationReport::on_step_end(TrainerView&, const StepReport&) {
    if (steps_ == 1) sums_ = {};
    ++steps_;
    const CommunicationTimes end = read_();
    sums_ += end;
    sums_ -= begin_;
}

std::string CommunicationReport::text() const {
    return steps_ == 0 ? "" : communication_text(sums_, std::max<std::int64_t>(steps_ - 1, 1));
}

std::string communication_text(const CommunicationTimes& sums, std::int64_t steps) {
    const auto counted = static_cast<double>(steps);
    // Waking up after a collective can make the measured wait longer than the collective itself.
    const double hidden =
        sums.busy_seconds > 0 ? std::max(0.0, 1 - sums.waited_seconds / sums.busy_seconds) : 0;
    return fmt::format(
        "Communication: {:.4g} collectives, {:.4g} s per step under way, {:.4g} s waited for; {:.0f} % "
        "behind computing.\n",
        static_cast<double>(sums.collectives) / counted, sums.busy_seconds / counted,
        sums.waited_seconds / counted, 100 * hidden);
}

}  // namespace drover
