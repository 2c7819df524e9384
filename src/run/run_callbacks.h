#pragma once

#include <optional>

#include "run/run_log.h"
#include "train/callbacks/checkpoint_report.h"
#include "train/callbacks/communication_report.h"
#include "train/callbacks/early_stop.h"
#include "train/callbacks/eval_samples.h"
#include "train/callbacks/log_printer.h"
#include "train/callbacks/non_finite_watch.h"
#include "train/callbacks/nxd_records.h"
#include "train/callbacks/pipeline_trace.h"
#include "train/callbacks/progress_bar.h"
#include "train/callbacks/run_banner.h"
#include "train/callbacks/run_summary.h"
#include "train/callbacks/signal_watch.h"
#include "train/callbacks/tensor_board.h"
#include "train/loop/trainer.h"
#include "train/profile/profiler.h"

namespace drover {

struct RunSettings;

/// What the callbacks of a run observe. All of it must outlive them.
struct WatchedRun {
    const RunSettings& settings;
    const Processes& processes;
    const RunLog& log;
    SignalThread* signals;  ///< null: the run does not handle signals
    Backend& backend;
    TrainEngine& engine;
    const Mesh& mesh;
    CommunicationReport::ReadTimes communication_times;
    Profiler::ObserveCollectives observe_collectives;
    std::function<double()> measure_peak;  ///< of all processes; takes a moment
    std::string config_text;               ///< as it is saved
    std::string model_type;
    EvalSamples::Generate make_samples{};  ///< after each evaluation; empty: none are made
};

/// The callbacks that watch a run and report on it, according to its settings.
class RunCallbacks {
  public:
    explicit RunCallbacks(const WatchedRun& run);

    /// Adds them in the required order. They must outlive the trainer.
    void add_to(Trainer& trainer);

    /// The signal that ended training; 0: none did.
    int ended_by() const { return signals_ ? signals_->ended_by() : 0; }
    /// Signals act again as they do without a run. Returns a signal that came too late to end training, or 0.
    int release_signals() { return signals_ ? signals_->release() : 0; }
    /// Where the profile is, for viewers of traces; empty: there is none.
    std::filesystem::path profile() const;
    /// Where TensorBoard's file is; empty: there is none.
    std::filesystem::path tensor_board_file() const;
    /// The last lines of a run.
    std::string summary() const;

  private:
    std::optional<ProgressBar> bar_;
    NonFiniteWatch non_finite_watch_;
    std::optional<RunBanner> banner_;
    std::optional<LogPrinter> log_printer_;
    RunSummary summary_;
    std::optional<CommunicationReport> communication_;
    std::optional<EarlyStop> early_stop_;
    std::optional<TensorBoard> tensor_board_;
    std::optional<EvalSamples> eval_samples_;
    std::optional<NxdRecords> nxd_records_;
    CheckpointReport checkpoint_report_;
    std::optional<SignalWatch> signals_;
    std::optional<Profiler> profiler_;
    std::optional<PipelineTrace> pipeline_trace_;
};

}  // namespace drover
