#include "public/trainer_run.h"

#include "public/trainer_inputs.h"

namespace drover::v1 {
namespace {

/// Keeps the folder locked until the last checkpoint is written, also if training fails.
class LockedFolder {
  public:
    explicit LockedFolder(TrainingRun& run) : run_(run) { run_.lock_output_folder(); }
    ~LockedFolder() { run_.unlock_output_folder(); }
    LockedFolder(const LockedFolder&) = delete;
    LockedFolder& operator=(const LockedFolder&) = delete;

  private:
    TrainingRun& run_;
};

}  // namespace

TrainerRun::TrainerRun(const TrainerParts& parts)
    : model_(parts.model.parts()), started_(start_run(parts)), run_(started_.settings, started_.processes) {
    const ProcessGroup& group = started_.processes.group;
    RunInputs inputs;
    group.together([&] { inputs = inputs_of(parts); });
    run_.take(std::move(inputs));
    run_.choose_device();
    group.together([&] {
        if (!started_.processes.alone() && run_.backend().device() == Device::cuda) gpus_.emplace();
    });
    run_.plan();
    group.together([&] { run_.check_memory(); });
}

TrainerRun::~TrainerRun() {
    if (trained_) trained_->leave_engine(run_, model_.use_count() > 1 && model_->trained == trained_);
}

void TrainerRun::prepare() {
    if (is_prepared_) return;
    run_.describe_mesh();
    run_.prepare(weights_in_memory(model_->trained, run_));
    is_prepared_ = true;
}

Json TrainerRun::train() {
    const LockedFolder locked(run_);
    run_.warn_of_little_space();
    prepare();
    if (!trained_) trained_ = TrainedWeights::of(run_);
    model_->trained = trained_;  // also when another Trainer has trained it in between
    Json metrics = run_.train();
    run_.save_state();
    return metrics;
}

Json TrainerRun::evaluate() {
    if (!run_.has_rows_to_evaluate())
        throw AgreedError("There is nothing to evaluate on: the trainer has no eval_dataset.", "Give one.");
    prepare();
    return run_.evaluate();
}

void TrainerRun::save_model(const std::string& folder) {
    prepare();
    run_.engine_model().save(folder);
}

}  // namespace drover::v1
