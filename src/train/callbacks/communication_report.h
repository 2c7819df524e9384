#pragma once

#include <functional>
#include <string>

#include "comm/communication_thread.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// A line with a newline: what collectives took in each of `steps` steps, of which `sums` is the total.
std::string communication_text(const CommunicationTimes& sums, std::int64_t steps);

/// How long a rank's collectives took in its steps, and how much of that lay behind computing.
class CommunicationReport final : public TrainerCallback {
  public:
    using ReadTimes = std::function<CommunicationTimes()>;
    /// `read` gives the times since some fixed moment, until training has ended.
    explicit CommunicationReport(ReadTimes read) : read_(std::move(read)) {}

    void on_step_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// Means over the steps, the first one (which warms up) left out when there are others; one line with a
    /// newline. Empty when nothing was trained.
    std::string text() const;

  private:
    ReadTimes read_;
    CommunicationTimes begin_;
    CommunicationTimes sums_;
    std::int64_t steps_ = 0;
};

}  // namespace drover
