#pragma once

#include <functional>
#include <string>

#include "comm/communication_thread.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// One line, ending in a newline: the time spent in collectives per step. `sums` is the total over `steps`
/// steps.
std::string communication_text(const CommunicationTimes& sums, std::int64_t steps);

/// How long a rank's collectives took in its steps, and how much of that was hidden by computation.
class CommunicationReport final : public TrainerCallback {
  public:
    using ReadTimes = std::function<CommunicationTimes()>;
    /// `read` gives the times since some fixed moment, until training has ended.
    explicit CommunicationReport(ReadTimes read) : read_(std::move(read)) {}

    void on_step_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// Means over the steps. The first step (warm-up) is left out when there are others. One line, ending in
    /// a newline; empty when nothing was trained.
    std::string text() const;

  private:
    ReadTimes read_;
    CommunicationTimes begin_;
    CommunicationTimes sums_;
    std::int64_t steps_ = 0;
};

}  // namespace drover
