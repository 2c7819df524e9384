#pragma once

#include <signal.h>

#include <optional>
#include <vector>

#include "run/process_group.h"
#include "train/loop/trainer_callback.h"

namespace drover::v1 {

/// Catches SIGTERM for its lifetime. Afterwards the signal acts as before; one that came but was not taken
/// is then sent again, to whatever the program does about it.
///
/// No handler may run on a thread that computes: oneDNN's matrix products use the stack pointer for other
/// data. So the signal is blocked in the thread that creates this and in OpenMP's, and fetched by take(). The
/// handler is for the program's other threads. Create and destroy it on one thread; only one at a time.
class CaughtSigterm {
  public:
    CaughtSigterm();
    ~CaughtSigterm();
    CaughtSigterm(const CaughtSigterm&) = delete;
    CaughtSigterm& operator=(const CaughtSigterm&) = delete;

    /// Whether the signal has come.
    bool take();

  private:
    struct sigaction before_ {};
    std::vector<char> was_blocked_;  // by thread of OpenMP
    bool taken_ = false;
};

/// Ends training after the step in which SIGTERM reaches any rank, and has it saved.
class SigtermStop final : public drover::TrainerCallback {
  public:
    /// `ranks` must outlive this object.
    explicit SigtermStop(const ProcessGroup& ranks) : ranks_(ranks) {}

    void on_step_end(TrainerView& view, const StepReport& step) override;

    /// The signal is caught for the lifetime of this object. Collective.
    class Watch {
      public:
        explicit Watch(SigtermStop& stop) : stop_(stop) {
            stop_.ranks_.together([&] { stop_.caught_.emplace(); });
        }
        ~Watch() { stop_.caught_.reset(); }
        Watch(const Watch&) = delete;
        Watch& operator=(const Watch&) = delete;

      private:
        SigtermStop& stop_;
    };

  private:
    const ProcessGroup& ranks_;
    std::optional<CaughtSigterm> caught_;
};

}  // namespace drover::v1
