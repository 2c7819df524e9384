#pragma once

#include <memory>
#include <optional>

#include "run/choose_backend.h"
#include "run/device_mesh.h"
#include "run/hub_push.h"
#include "run/model_source.h"
#include "run/output_folder.h"
#include "run/pipeline_report.h"
#include "run/process_limits.h"
#include "run/run_adapters.h"
#include "run/run_callbacks.h"
#include "run/run_data.h"
#include "run/run_log.h"
#include "run/sample_generator.h"
#include "run/settings/run_settings.h"
#include "run/token_source.h"
#include "train/engine/engine_model.h"
#include "train/engine/train_engine_options.h"
#include "train/loop/trainer.h"

namespace drover {

/// Model and rows of a run that do not come from files named in the settings.
struct RunInputs {
    ModelSource model;
    TokenSource tokens;
};

/// A run from its settings to its output files, as executed by one process. Its phases are its member
/// functions, in calling order. With several processes, all call the same functions in the same order.
class TrainingRun {
  public:
    /// Opens the log. `processes` must outlive the run, and so must `signals` if the run is to end cleanly on
    /// SIGTERM and the like. Collective.
    TrainingRun(RunSettings settings, const Processes& processes, SignalThread* signals = nullptr);
    ~TrainingRun();
    TrainingRun(const TrainingRun&) = delete;
    TrainingRun& operator=(const TrainingRun&) = delete;

    /// Is told of the loop's events, after the run's own callbacks. Before prepare(); must outlive the run.
    void add_callback(TrainerCallback& callback) { more_callbacks_.push_back(&callback); }
    /// Where train() continues from. Before lock_output_folder().
    void resume_from(ResumeSettings resume) { settings_.checkpoints.resume = std::move(resume); }

    /// Creates, tests and locks the output folder, and finds the checkpoint to resume from. Called before
    /// anything that takes long, and before leftovers of a run that may not have ended are removed.
    void lock_output_folder();
    /// Waits until nothing is being written any more, and releases the folder.
    void unlock_output_folder();
    /// Whether that found a checkpoint to resume from.
    bool resumes() const { return resume_point_.has_value(); }

    /// Reads model, tokenizer and rows from the files that the settings name.
    void read();
    /// Takes them from memory.
    void take(RunInputs inputs);

    void choose_device();
    /// Creates the mesh and plans all memory; allocates nothing yet.
    void plan();
    /// Logs the plan.
    void describe() const;
    /// Logs how the processes share the work, if there are several.
    void describe_mesh() const;
    /// Warns if the file system has no room for a checkpoint.
    void warn_of_little_space() const;
    /// Error when the plan needs more memory than there is.
    void check_memory() const;

    /// Whether the requested run was already completed: then nothing is written again. Logs it. Collective.
    bool is_complete();

    using ReadWeight = std::function<std::vector<float>(const LeafSpec&)>;
    /// Allocates, sets the weights and creates the loop. Weights come from the checkpoint to resume from,
    /// otherwise from `in_memory` if given, otherwise from the model's files, otherwise they are new.
    void prepare(const ReadWeight& in_memory = {});

    /// Loads the checkpoint to resume from into a run that is already prepared. Collective.
    void resume_prepared();

    /// Trains to the end and returns the last metrics; null if a callback interrupted it
    /// (loop().interrupted()).
    Json train();
    /// The same; StoppedBySignal when a signal ended it.
    Json train_or_stop();
    /// Evaluates and returns the metrics.
    Json evaluate();

    /// Writes what run_clm.py writes after training: the model, its metrics, the loop's state.
    void write_training_results(Json metrics);
    /// Writes and prints the metrics of an evaluation.
    void write_evaluation_results(Json metrics);
    /// Writes the model card, prints a summary, and uploads the files if that is asked for. Collective.
    void conclude();

    const RunSettings& settings() const { return settings_; }
    const Processes& processes() const { return processes_; }
    const Messages& messages() const { return log_->messages(); }
    const ModelSource& model() const { return model_; }
    /// Those that are trained instead of the model's weights, if any.
    const std::optional<RunAdapters>& adapters() const { return adapters_; }
    const TrainEngine& engine() const { return *engine_; }
    EngineModel& engine_model() { return *engine_model_; }
    Backend& backend() const { return *backend_; }
    const Mesh& mesh() const { return **mesh_; }
    const Trainer& loop() const { return *trainer_; }
    bool has_rows_to_evaluate() const { return evaluation_ != nullptr; }
    /// Writes trainer_state.json.
    void save_state() const { trainer_->save_state(); }

  private:
    void together(std::string_view doing, const std::function<void()>& work) const;
    void say(const std::string& text) const { messages().info(text); }

    void make_engine();
    /// Reads the prompts of --eval_prompts, and adds the memory of the model that answers them to the plan.
    void plan_samples();
    /// Of the process that needs most.
    std::size_t planned_bytes() const;
    /// Whether the plan fits into the devices' memory on every rank, which decide alike. Collective.
    bool plan_fits() const;
    /// A training batch that does not fit becomes the largest that does. Collective.
    void fit_batch();
    void describe_steps() const;
    void find_adapters();
    void prepare_weights();
    void load_model();
    void prepare_adapters();
    void write_texts(const std::filesystem::path& folder) const;
    void take_kept_leaves(const ReadWeight& read);
    void load_shards();
    ReadWeight from_embedding(ReadWeight read) const;
    CheckpointOptions::Rewrite rewriting() const;
    void resume_nxd();
    void check_resume_point() const;
    void resume();
    void align_config();
    std::string what_changed() const;
    std::filesystem::path trained_model() const;
    std::int64_t earlier_end() const;
    TrainerState completed_state() const;
    StepPlan planned() const;
    ParameterCounts parameters() const { return count_parameters(model_.config); }
    ProcessLimits limits() const { return {settings_, processes_, *backend_, *mesh_}; }
    /// Of a mesh with several pipeline ranks.
    PlannedPipeline pipeline() const { return {model_.config, engine_options_, mesh_plan_.shape}; }
    void describe_pipeline() const;
    void describe_memory() const;
    RunFacts facts() const;
    std::string checkpoint_text() const;
    std::string space_text() const;
    std::int64_t samples(std::int64_t known, std::optional<std::int64_t> asked) const;
    void report(std::string_view split, const Json& metrics) const;
    void write_card(const TrainerState& state) const;
    void say_where_files_are() const;
    void write_conclusion();
    void begin_push();
    void push_files();

    RunSettings settings_;
    const Processes& processes_;
    SignalThread* signals_;
    std::optional<RunLog> log_;

    std::optional<OutputFolder> folder_;
    std::optional<SignalThread::FinalAction> unlock_at_end_;
    std::optional<std::filesystem::path> resume_point_;
    std::optional<TrainerState> resumed_state_;
    std::optional<LoopState> resumed_loop_;  ///< absent for a checkpoint from Hugging Face
    bool complete_ = false;

    ModelSource model_;
    std::optional<RunAdapters> adapters_;
    TokenSource tokens_;

    MeshPlan mesh_plan_;
    std::unique_ptr<Backend> backend_;
    std::optional<DeviceMesh> mesh_;
    Precision precision_;
    BatchLayout batches_;
    bool keeps_frozen_fp8_ = true;
    TrainEngineOptions engine_options_;
    std::unique_ptr<TrainEngine> engine_;
    std::vector<RankMemory> memory_;  // of each pipeline rank
    std::optional<SampleGenerator> samples_;
    std::unique_ptr<EngineModel> engine_model_;
    std::unique_ptr<TrainingData> training_, evaluation_;

    std::unique_ptr<HubPush> push_;  // of the first process
    std::optional<RunCallbacks> callbacks_;
    std::vector<TrainerCallback*> more_callbacks_;
    std::optional<Trainer> trainer_;
};

}  // namespace drover
