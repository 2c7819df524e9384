#include "train/communication_report.h"

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
    sums_.collectives += end.collectives - begin_.collectives;
    sums_.busy_seconds += end.busy_seconds - begin_.busy_seconds;
    sums_.waited_seconds += end.waited_seconds - begin_.waited_seconds;
}

std::string CommunicationReport::text() const {
    if (steps_ == 0) return {};
    const auto counted = static_cast<double>(std::max<std::int64_t>(steps_ - 1, 1));
    // Waking up after a collective makes a wait longer than what was waited for.
    const double hidden =
        sums_.busy_seconds > 0 ? std::max(0.0, 1 - sums_.waited_seconds / sums_.busy_seconds) : 0;
    return fmt::format(
        "Communication: {:.4g} collectives, {:.4g} s per step under way, {:.4g} s waited for; {:.0f} % "
        "behind "
        "computing.\n",
        static_cast<double>(sums_.collectives) / counted, sums_.busy_seconds / counted,
        sums_.waited_seconds / counted, 100 * hidden);
}

}  // namespace drover
