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

ResumeSettings resume_settings_of(const TrainOptions& options) {
    using From = ResumeSettings::From;
    if (const auto* folder = std::get_if<std::string>(&options.resume_from_checkpoint))
        return {.from = From::folder, .folder = *folder};
    return {.from = std::get<bool>(options.resume_from_checkpoint) ? From::newest : From::nowhere_unchecked,
            .asked_by = "resume_from_checkpoint is true"};
}

}  // namespace

/// A call that is being made. A callback must not make another one.
class TrainerRun::Use {
  public:
    explicit Use(TrainerRun& run) : run_(run) {
        if (std::exchange(run_.is_in_use_, true))
            throw Error("A callback calls the Trainer that called it.",
                        "Ask for what is to be done in its TrainerControl.");
    }
    ~Use() { run_.is_in_use_ = false; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

  private:
    TrainerRun& run_;
};

TrainerRun::TrainerRun(const TrainerParts& parts)
    : model_(parts.model.parts()),
      started_(start_run(parts)),
      callbacks_(started_.processes.group),
      run_(started_.settings, started_.processes) {
    const ProcessGroup& group = started_.processes.group;
    group.together([&] {
        for (const auto& callback : parts.callbacks) callbacks_.add(callback);
    });
    run_.add_callback(callbacks_);
    // After the program's callbacks, so that a signal that comes in one of them is seen in the same step.
    if (started_.settings.checkpoints.save_on_sigterm) run_.add_callback(sigterm_.emplace(group));
    RunInputs inputs;
    group.together([&] { inputs = inputs_of(parts, started_.processes); });
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
    run_.prepare(run_.resumes() ? TrainingRun::ReadWeight() : weights_in_memory(model_->trained, run_));
    is_prepared_ = true;
}

Json TrainerRun::train(const TrainOptions& options) {
    const Use use(*this);
    std::optional<SigtermStop::Watch> watch;
    if (sigterm_) watch.emplace(*sigterm_);
    run_.resume_from(resume_settings_of(options));
    const LockedFolder locked(run_);
    run_.warn_of_little_space();
    if (is_prepared_)
        run_.resume_prepared();
    else
        prepare();
    if (!trained_) trained_ = TrainedWeights::of(run_);
    model_->trained = trained_;  // also when another Trainer has trained it in between
    callbacks_.begin(run_.has_rows_to_evaluate());
    Json metrics = run_.train();
    if (!is_interrupted())
        run_.save_state();
    else if (!run_.loop().save_failure().empty())
        throw AgreedError(run_.loop().save_failure());
    return metrics;
}

Json TrainerRun::evaluate() {
    const Use use(*this);
    if (!run_.has_rows_to_evaluate())
        throw AgreedError("There is nothing to evaluate on: the trainer has no eval_dataset.", "Give one.");
    prepare();
    callbacks_.begin(true);
    return run_.evaluate();
}

void TrainerRun::save_model(const std::string& folder) {
    const Use use(*this);
    prepare();
    run_.engine_model().save(folder);
}

}  // namespace drover::v1
