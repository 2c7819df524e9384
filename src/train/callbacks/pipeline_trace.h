#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/stopwatch.h"
#include "train/engine/train_engine.h"
#include "train/loop/trainer_callback.h"

namespace drover {

/// What one rank computed in a step, in seconds on the first rank's clock.
struct RankTimeline {
    MeshPlace place;
    std::vector<TimedAction> actions;
};

/// A step of all ranks.
struct StepTimeline {
    std::int64_t step = 0;  ///< from 1
    std::vector<RankTimeline> ranks;

    /// The part of the pipeline ranks' time in which they do not compute: from the first computation of a
    /// pipeline to its last one.
    double bubble() const;
    /// The mean times of each stage's forwards and backwards.
    std::vector<StageTimes> stage_times(int stages) const;
};

/// Chrome's trace format: a row per rank, an arrow per message.
std::string timeline_text(const std::vector<StepTimeline>& steps, const MeshShape& shape);

/// Writes a timeline of the updates 2 to 4 on all ranks, and says how long the bubble was. If the file cannot
/// be written, it reports so on standard error, and the run continues.
class PipelineTrace final : public TrainerCallback {
  public:
    /// All references must outlive this object. `say` prints a line, on ranks that print.
    PipelineTrace(TrainEngine& engine, Backend& backend, const Mesh& mesh, std::filesystem::path file,
                  std::function<void(const std::string&)> say);
    ~PipelineTrace() override { engine_.observe_actions(nullptr); }

    void on_step_begin(TrainerView& view) override;
    void on_step_end(TrainerView& view, const StepReport& step) override;
    void on_train_end(TrainerView& view) override;

  private:
    StepTimeline gather(std::int64_t step, const std::vector<TimedAction>& own) const;
    void say_bubble(const StepTimeline& step) const;
    void finish();

    TrainEngine& engine_;
    Backend& backend_;
    const Mesh& mesh_;
    std::filesystem::path file_;
    std::function<void(const std::string&)> say_;
    ActionLog log_;
    bool observing_ = false, finished_ = false;
    double clock_ahead_ = 0, began_ = 0;  // of the step, on the first rank's clock
    std::vector<StepTimeline> steps_;
};

}  // namespace drover
