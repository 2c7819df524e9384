#pragma once

#include <cstdio>
#include <string>

#include "core/stopwatch.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// What the bar shows.
struct ProgressNumbers {
    std::int64_t step = 0;
    std::int64_t steps = 0;
    StepReport last;
    double seconds = 0;            ///< since training began
    std::int64_t steps_timed = 0;  ///< in these seconds
    std::int64_t tokens = 0;       ///< in these seconds
    double share_of_peak = 0;      ///< 0: not known
};

/// "12/100 loss 4.186 lr 0.001 norm 1.5 12.3k tok/s 41% of peak 0:01:05 left", preceded by a bar if `width`
/// leaves room.
std::string progress_text(const ProgressNumbers& numbers, int width);

/// Shows the progress of training and evaluations on standard error: on a terminal, one line redrawn several
/// times a second; otherwise a line now and then. It clears the line before a record is logged, so add it
/// before callbacks that print records.
class ProgressBar final : public TrainerCallback {
  public:
    /// `peak_flops`: what all processes together can do per second in the dtype of the matrix products; 0 if
    /// unknown.
    explicit ProgressBar(double peak_flops = 0);
    /// For tests: writes to `out` as if it were a terminal of `width` columns (0: none).
    ProgressBar(double peak_flops, std::FILE* out, int width);

    void on_train_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;
    void on_evaluation_step(TrainerView& view, std::int64_t done, std::int64_t batches) override;
    void on_log(TrainerView& view, const Json& record) override;
    void on_train_end(TrainerView& view) override;

  private:
    void clear();
    void draw(const std::string& text);
    bool due();

    double peak_flops_;
    std::FILE* out_;
    int width_;  ///< of the terminal; 0: no terminal
    Stopwatch watch_;
    double next_time_ = 0;
    bool drawn_ = false;
    ProgressNumbers numbers_;
};

}  // namespace drover
