#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "app/busy_machine.h"
#include "app/commands.h"
#include "app/process_usage.h"
#include "app/run_clm_data.h"
#include "app/run_clm_resume.h"
#include "app/run_clm_sources.h"
#include "args/help_text.h"
#include "args/parse_words.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/failure.h"
#include "core/python_text.h"
#include "core/stopwatch.h"
#include "io/checkpoint_manifest.h"
#include "model/saved_config.h"
#include "parallel/store_layout.h"
#include "run/choose_backend.h"
#include "run/lost_updates.h"
#include "run/mesh_report.h"
#include "run/model_texts.h"
#include "run/output_folder.h"
#include "run/process_limits.h"
#include "run/run_clm_settings.h"
#include "run/run_mesh.h"
#include "run/speech.h"
#include "train/callbacks/checkpoint_report.h"
#include "train/callbacks/communication_report.h"
#include "train/callbacks/early_stop.h"
#include "train/callbacks/log_printer.h"
#include "train/callbacks/non_finite_watch.h"
#include "train/callbacks/operation_trace.h"
#include "train/callbacks/progress_bar.h"
#include "train/callbacks/run_banner.h"
#include "train/callbacks/run_summary.h"
#include "train/callbacks/signal_watch.h"
#include "train/callbacks/tensor_board.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/hf_checkpoint.h"
#include "train/checkpoint/model_card.h"
#include "train/checkpoint/results_files.h"
#include "train/engine/communication_plan.h"
#include "train/engine/engine_model.h"
#include "train/loop/trainer.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* state_file = "trainer_state.json";
constexpr const char* card_file = "README.md";

TrainerState saved_state(const fs::path& folder) {
    const fs::path file = folder / state_file;
    return TrainerState::parse(read_text_file(file), file.string());
}

/// What a run is made of besides its files.
struct ClmSetting {
    const RunArguments& run;
    const RunProcesses& processes;
    const Speech& speech;
    const OutputFolder* folder;  ///< null: nothing is written
    std::optional<fs::path> resume_point;
};

/// A run from its arguments to its files: what one process does for it. Where there are others, all call the
/// same functions in the same order.
class ClmRun {
  public:
    /// Reads model and tokenizer.
    ClmRun(const ClmSetting& setting, SignalThread& signals)
        : run_(setting.run),
          arguments_(run_.arguments),
          processes_(setting.processes),
          speech_(setting.speech),
          messages_(speech_.messages()),
          folder_(setting.folder),
          resume_point_(setting.resume_point),
          settings_(trainer_settings(arguments_)),
          model_(find_model_and_tokenizer(arguments_)),
          non_finite_watch_(on_non_finite(arguments_)),
          signals_(
              signals, processes_.alone() ? SignalWatch::Agree() : [&ranks = processes_.ranks](int own) {
                  return ranks.largest(own);
              }) {
        settings_.is_world_process_zero = processes_.is_first();
        settings_.is_local_process_zero = processes_.machine.rank == 0;
    }

    void find_data() {
        check_models_alike(processes_, model_);
        if (arguments_.flag("do_train") || arguments_.flag("do_eval"))
            tokens_ = find_tokens_together(processes_, arguments_, model_, messages_);
    }

    void choose_device() {
        mesh_settings_ = mesh_settings(run_, model_.config, processes_.ranks.size(), processes_.machine);
        for (const std::string& line : mesh_settings_.explanations) messages_.warning(line);
        backend_ = make_process_backend(arguments_, processes_.machine);
    }

    /// Where there are other processes: collective.
    void join_mesh() { mesh_.emplace(processes_.world, processes_.ranks, mesh_settings_, *backend_); }

    /// Plans everything, but allocates nothing yet.
    void plan() {
        precision_ = chosen_precision(run_, model_.config.dtype, backend_->device());
        batches_ = deal_batches(mesh_settings_, **mesh_, tokens_.packing.packing, settings_);
        tokens_.row_length = batches_.padded(tokens_.row_length);
        make_engine();
    }

    void describe() const {
        say(fmt::format("{}; {} parameters ({} active); {}", backend_->description(),
                        with_thousands(parameters().total), with_thousands(parameters().active),
                        precision_text(precision_)));
        if (!processes_.alone()) describe_mesh();
        say("Memory:\n" + engine_->memory_plan().table());
        if (engine_->host_memory_plan().total > 0)
            say("In the host's memory:\n" + engine_->host_memory_plan().table());
        if (backend_->reserved_bytes() > 0)
            say(fmt::format("Besides, CUDA's libraries take up to {} of the GPU.",
                            bytes_text(backend_->reserved_bytes())));
        if (arguments_.flag("spmd_debug"))
            say(placement_table(make_param_spec(model_.config), **mesh_, mesh_settings_.sharding,
                                precision_.parameters));
        if (training_) {
            const StepPlan plan = planned();
            const double tokens = plan.trained_samples * static_cast<double>(tokens_.row_length);
            say(fmt::format("{}, {} of {}, about {} tokens",
                            plan.streamed ? "Rows as they are read"
                                          : fmt::format("{}, {}", counted(plan.examples, "row"),
                                                        counted(plan.epochs, "epoch")),
                            counted(plan.max_steps, "update"), counted(plan.total_batch_size, "row"),
                            with_thousands(static_cast<std::int64_t>(tokens))));
            // What depends on the number of steps could not be compared before.
            if (const Json& deepspeed = arguments_.json("deepspeed"); !deepspeed.is_null())
                read_deepspeed_settings(deepspeed, "--deepspeed", arguments_,
                                        {.world_size = run_.replicas, .total_steps = plan.max_steps});
            // One process measures while the others wait: its processors may be theirs, too.
            if (arguments_.flag("dry_run") && processes_.is_first())
                say(time_estimate(
                    tokens, parameters().active,
                    limits().peak_of_all(backend_->measure_peaks().flops(precision_.parameters)),
                    processes_.ranks.size()));
            if (settings_.save_strategy != IntervalStrategy::no) say(checkpoint_text());
            if (const std::string warning = space_text(); !warning.empty()) messages_.warning(warning);
        }
        limits().check(*engine_, model_.config, engine_settings_, settings_.gradient_accumulation_steps,
                       batches_.part.replicas);
        if (backend_->device() == Device::cpu && processes_.alone())
            if (const std::string hint = busy_machine_hint(omp_get_max_threads()); !hint.empty()) say(hint);
    }

    void go() {
        complete_ = is_complete();
        if (complete_ && !arguments_.flag("do_eval")) {
            if (lacks_card()) write_card(saved_state(settings_.output_dir));
            return;
        }
        // Nothing in these is collective, and a file that no rank can read is shown once.
        processes_.ranks.together([&] { engine_->allocate(); });
        const Stopwatch preparation;
        processes_.ranks.together([&] { prepare_weights(); });
        if (arguments_.flag("do_train") && !complete_)
            if (const std::string lost =
                    lost_updates_warning(*engine_, engine_settings_, settings_.learning_rate);
                !lost.empty())
                messages_.warning(lost);
        const std::vector<std::string> aligned = align_special_tokens(
            {.bos = model_.tokenizer->bos(), .eos = model_.tokenizer->eos(), .pad = model_.tokenizer->pad()},
            model_.config, model_.generation);
        if (!aligned.empty())
            messages_.warning(fmt::format(
                "The tokenizer's {} differ from the model's config; the saved config and generation "
                "config have the tokenizer's.",
                fmt::join(aligned, ", ")));
        // Hugging Face turns the cache of generation off for training and saves it so.
        model_.config.json["use_cache"] = arguments_.flag("use_cache");

        Trainer trainer(settings_, *engine_model_, training_.get(), evaluation_.get(),
                        {.model_preparation_seconds = preparation.seconds(),
                         .before_writing = [this] { folder_->check_still_ours(); }});
        add_callbacks(trainer);
        if (complete_) trainer.adopt(*resumed_state_);
        if (arguments_.flag("do_train") && !complete_) train(trainer);
        if (arguments_.flag("do_eval")) evaluate(trainer);
        say(fmt::format("This process had at most {} of memory resident.",
                        bytes_text(static_cast<std::size_t>(peak_resident_bytes()))));
        if (!processes_.is_first()) return;
        if (!complete_ || lacks_card()) write_card(trainer.state());
        write_log(stdout, summary_.text());
        if (communication_) write_log(stdout, communication_->text());
        if (tensor_board_) say(fmt::format("TensorBoard's file is {}.", tensor_board_->written().string()));
        say(fmt::format("The files are in {}.", settings_.output_dir.string()));
    }

  private:
    void say(const std::string& text) const { messages_.info(text); }

    void describe_mesh() const {
        say(mesh_table(mesh_settings_, processes_.machine, engine_settings_.sequence_parallel,
                       arguments_.flag("spmd_debug")));
        if (!arguments_.flag("do_train")) return;
        say(batch_text(mesh_settings_, settings_.per_device_train_batch_size));
        say(communication_table(plan_communication(model_.config, engine_settings_, **mesh_, engine_->store(),
                                                   backend_->device(),
                                                   settings_.gradient_accumulation_steps)));
    }

    ParameterCounts parameters() const { return count_parameters(model_.config); }

    ProcessLimits limits() const { return {arguments_, processes_, *backend_, *mesh_}; }
    std::uint64_t checkpoint_buffer() const { return limits().checkpoint_buffer(*engine_); }

    std::string checkpoint_text() const {
        const std::uint64_t bytes =
            engine_->saved_tensors(!arguments_.flag("save_only_model"), SaveModelOptions{}.max_shard_bytes)
                .part_bytes();
        return fmt::format(
            "{} has about {}; it is written {}.",
            processes_.alone() ? "A checkpoint" : "A process's part of a checkpoint", bytes_text(bytes),
            bytes <= checkpoint_buffer()
                ? fmt::format("behind the steps from a copy of {} in memory", bytes_text(bytes))
                : fmt::format("while training waits, for it does not fit a buffer of {} "
                              "(--save_buffer_gb)",
                              bytes_text(checkpoint_buffer())));
    }

    RunFacts facts() const {
        return {.data = tokens_.train_hash,
                .tokenizer = model_.tokenizer->fingerprint(),
                .total_batch = settings_.per_device_train_batch_size * settings_.replicas *
                               settings_.gradient_accumulation_steps};
    }

    /// Of the first file that is to be written: a checkpoint, or the model alone.
    std::string space_text() const {
        const bool checkpoints = settings_.save_strategy != IntervalStrategy::no;
        if (!checkpoints && !arguments_.flag("save_final_model")) return "";
        const bool with_optimizer = checkpoints && !arguments_.flag("save_only_model");
        return space_warning(
            settings_.output_dir,
            engine_->saved_tensors(with_optimizer, SaveModelOptions{}.max_shard_bytes).file_bytes(),
            checkpoints ? "A checkpoint" : "The model");
    }

    void make_engine() {
        const std::int64_t rows =
            batches_.part.rows_of(arguments_.flag("do_train") ? settings_.per_device_train_batch_size
                                                              : settings_.per_device_eval_batch_size);
        engine_settings_ = engine_options(run_, precision_, mesh_settings_, backend_->device(), rows,
                                          std::max<std::int64_t>(tokens_.row_length, 1));
        engine_ = std::make_unique<TrainEngine>(model_.config, engine_settings_, *backend_, **mesh_);
        engine_model_ = std::make_unique<EngineModel>(
            *engine_, model_.config, *backend_, **mesh_,
            [this](const fs::path& folder) {
                write_model_texts(folder, model_.config, engine_->saved_dtype(), model_.generation,
                                  *model_.tokenizer, arguments_);
            },
            CheckpointOptions{.with_optimizer = !arguments_.flag("save_only_model"),
                              .buffer_bytes = checkpoint_buffer(),
                              .facts = facts()});
        if (arguments_.flag("do_train"))
            training_ = training_data(arguments_, settings_, model_, tokens_, batches_);
        if (arguments_.flag("do_eval"))
            evaluation_ = evaluation_data(arguments_, settings_, model_, tokens_, batches_);
    }

    /// Whether the run that is asked for was made before, to its end: then nothing of it is written again.
    bool is_complete() const {
        int complete = 0;
        processes_.ranks.together([&] {
            // The state is the last file that a run writes.
            if (!processes_.is_first() || !resume_point_ || !fs::exists(settings_.output_dir / state_file))
                return;
            if (arguments_.flag("save_final_model") && !holds_weights(settings_.output_dir)) return;
            const std::int64_t done = saved_state(*resume_point_).global_step, wanted = planned().max_steps;
            if (done < wanted || ended_at() < wanted) return;
            say(fmt::format(
                "Training is already complete: {}. Nothing of it is written again; {} starts anew.",
                done == wanted ? fmt::format("{} of {} steps", done, wanted)
                               : fmt::format("{} steps are done, {} were asked for", done, wanted),
                arguments_.flag("overwrite_output_dir")
                    ? fmt::format("--overwrite_output_dir without --{}", arguments_.given("loading_step")
                                                                             ? "loading_step"
                                                                             : "resume_from_checkpoint")
                    : "--overwrite_output_dir"));
            if (const std::string differences = what_changed(); !differences.empty())
                messages_.warning(
                    "Warning: The complete run is not the one that is asked for, for these differ: " +
                    differences);
            complete = 1;
        });
        return processes_.ranks.largest(complete) != 0;
    }

    /// The step at which the run that --output_dir holds has ended; 0 where that is not known.
    std::int64_t ended_at() const {
        try {
            return saved_state(settings_.output_dir).global_step;
        } catch (const Error&) {
            return 0;  // then it is written again
        }
    }

    StepPlan planned() const { return Trainer(settings_, *engine_model_, training_.get(), nullptr).plan(); }

    /// The model that the complete run ended with.
    fs::path trained_model() const {
        if (arguments_.flag("save_final_model")) return settings_.output_dir;
        if (settings_.load_best_model_at_end && resumed_state_->best_model_checkpoint)
            return *resumed_state_->best_model_checkpoint;
        return *resume_point_;
    }

    void prepare_weights() {
        if (complete_) {
            resumed_state_ = saved_state(*resume_point_);
            engine_model_->load(trained_model());
            return;
        }
        if (resume_point_) {
            resume();
            return;
        }
        if (model_.weights.empty()) {
            say(fmt::format("Training new model from scratch - Total size={:.2f}M params",
                            static_cast<double>(parameters().total) / (1 << 20)));
            engine_->initialize_weights(settings_.seed);
            return;
        }
        const LoadReport report = engine_->load_weights(model_.weights, settings_.seed);
        if (const std::string text = report.text(); !text.empty()) messages_.warning(text);
    }

    void resume() {
        resumed_state_ = saved_state(*resume_point_);
        resumed_loop_ = engine_model_->resume(*resume_point_);
        const StepPlan plan = planned();
        const TrainerState fresh = TrainerState::begin(settings_, plan.max_steps, plan.epochs);
        if (const std::string warning = changed_settings(settings_, fresh, *resumed_state_); !warning.empty())
            messages_.warning(warning);
        if (const std::string differences = what_changed(); !differences.empty())
            messages_.warning(
                "Warning: The resumed run will not be the one that was stopped, for these differ: " +
                differences);
        say("  Continuing training from checkpoint, will skip to saved global_step");
        say(fmt::format("  Continuing training from epoch {}",
                        resumed_state_->global_step / plan.updates_per_epoch));
        say(fmt::format("  Continuing training from global step {}", resumed_state_->global_step));
    }

    /// A line for each thing that makes this run another one than that of the checkpoint.
    std::string what_changed() const {
        std::string lines;
        const fs::path arguments = *resume_point_ / "training_args.json";
        if (fs::exists(arguments))
            lines += changed_arguments(arguments_.to_json(), read_json_file(arguments));
        if (const auto config = config_of_checkpoint()) lines += changed_config(model_.config, *config);
        if (!is_hf_checkpoint(*resume_point_))
            lines += changed_facts(facts(), RunFacts::from(CheckpointManifest::read(*resume_point_).state));
        return lines;
    }

    /// Nothing where it has none that can be read, as one of the Trainer's may have; --config_name is enough
    /// to go on.
    std::optional<ModelConfig> config_of_checkpoint() const {
        try {
            return ModelConfig::from_path(*resume_point_);
        } catch (const Error&) {
            return std::nullopt;
        }
    }

    /// Runs until the end or a signal.
    Json train_until_stopped(Trainer& trainer) {
        Json metrics = resumed_state_
                           ? trainer.train(&*resumed_state_, resumed_loop_ ? &*resumed_loop_ : nullptr)
                           : trainer.train();
        if (!trainer.interrupted()) return metrics;
        const int number = signals_.ended_by();
        const std::int64_t step = trainer.state().global_step;
        if (!trainer.save_failure().empty())
            throw StoppedBySignal(number,
                                  fmt::format("Stopped by {} after step {}, which could not be saved.",
                                              signal_name(number), step),
                                  trainer.save_failure());
        throw StoppedBySignal(
            number,
            fmt::format("Stopped by {} after step {}, which is saved in {}.", signal_name(number), step,
                        checkpoint_folder(settings_.output_dir, step).string()),
            arguments_.flag("overwrite_output_dir")
                ? "The same command without --overwrite_output_dir goes on from there."
                : "The same command goes on from there.");
    }

    void add_callbacks(Trainer& trainer) {
        const bool first = processes_.is_first();
        const bool no_bar = arguments_.optional_flag("disable_tqdm").value_or(!messages_.tell_warnings());
        if (first && !no_bar) {
            // Measuring takes a moment, which is worth it where somebody watches.
            const bool watched = isatty(STDERR_FILENO) != 0;
            bar_.emplace(watched ? limits().peak_of_all(
                                       backend_->measure_peaks().reference_flops(precision_.parameters))
                                 : 0);
            trainer.add_callback(*bar_);
        }
        trainer.add_callback(non_finite_watch_);
        if (messages_.tell_info()) trainer.add_callback(banner_);
        if (std::FILE* records = speech_.records()) {
            log_printer_.emplace(
                arguments_.text("log_format") == "json" ? LogFormat::json : LogFormat::hugging_face_5,
                first && !no_bar ? LogStyle::beside_bar : LogStyle::plain, records);
            trainer.add_callback(*log_printer_);
        }
        trainer.add_callback(summary_);
        if (arguments_.flag("comm_stats")) add_communication_report(trainer);
        if (settings_.early_stopping_patience) {
            early_stop_.emplace(*settings_.early_stopping_patience, settings_.early_stopping_threshold);
            trainer.add_callback(*early_stop_);
        }
        if (first && arguments_.words("report_to") == std::vector<std::string>{"tensorboard"}) {
            const fs::path beside = settings_.output_dir / default_tensor_board_folder();
            tensor_board_.emplace(arguments_.optional_text("logging_dir").value_or(beside.string()),
                                  python_json(arguments_.to_json(), 2),
                                  model_.config.saved_text(engine_->saved_dtype()));
            trainer.add_callback(*tensor_board_);
        }
        trainer.add_callback(checkpoint_report_);
        trainer.add_callback(signals_);
        const bool traced =
            arguments_.integer("profile_epoch") >= 0 || arguments_.integer("profile_step") >= 0;
        if (first && traced) {
            tracer_.emplace(
                *backend_,
                TraceSettings{.epoch = std::max<std::int64_t>(0, arguments_.integer("profile_epoch")),
                              .step = std::max<std::int64_t>(0, arguments_.integer("profile_step")),
                              .seconds = static_cast<double>(arguments_.integer("profile_duration_ms")) / 1e3,
                              .folder = arguments_.optional_text("profile_logdir")
                                            .value_or((settings_.output_dir / "profile").string())});
            trainer.add_callback(*tracer_);
        }
    }

    void add_communication_report(Trainer& trainer) {
        if (processes_.alone())
            return messages_.warning("--comm_stats: one process alone has no collectives.");
        communication_.emplace([this] { return mesh_->communication_times(); });
        trainer.add_callback(*communication_);
    }

    void train(Trainer& trainer) {
        Json metrics = train_until_stopped(trainer);
        if (arguments_.flag("save_final_model")) engine_model_->save(settings_.output_dir);
        metrics["train_samples"] = samples(trainer.plan().examples, "max_train_samples");
        report("train", metrics);
        trainer.save_state();
        if (const int late = processes_.ranks.largest(signals_.release()); late != 0)
            throw StoppedBySignal(late,
                                  fmt::format("Stopped by {}, when training had ended.", signal_name(late)),
                                  fmt::format("The model is in {}.", settings_.output_dir.string()));
        if (tracer_ && !tracer_->written().empty())
            say(fmt::format("The trace is in {}.", tracer_->written().string()));
    }

    void evaluate(Trainer& trainer) {
        say("*** Evaluate ***");
        Json metrics = trainer.evaluate();
        folder_->check_still_ours();
        metrics["eval_samples"] = samples(evaluation_->samples(), "max_eval_samples");
        metrics["perplexity"] = std::exp(metrics.at("eval_loss").get<double>());
        report("eval", metrics);
    }

    /// A stream's number of samples is what was asked for, as run_clm.py reports it, else what was read.
    std::int64_t samples(std::int64_t known, std::string_view limit) const {
        return arguments_.flag("streaming") ? arguments_.optional_integer(limit).value_or(known) : known;
    }

    void report(std::string_view split, const Json& metrics) const {
        if (!processes_.is_first()) return;
        fs::create_directories(settings_.output_dir);
        write_log(stdout, metrics_table(split, metrics));
        save_metrics(settings_.output_dir, split, metrics);
    }

    /// A complete run may have been killed before it came to its last file, which the first process writes.
    bool lacks_card() const { return processes_.is_first() && !fs::exists(settings_.output_dir / card_file); }

    void write_card(const TrainerState& state) const {
        const OptimizerSettings optimizer = optimizer_settings(arguments_);
        const std::string card =
            model_card({.name = settings_.output_dir.filename().string(),
                        .base_model = arguments_.optional_text("model_name_or_path").value_or(""),
                        .dataset = tokens_.name,
                        .drover_version = DROVER_VERSION,
                        .optimizer = optimizer.name,
                        .precision = precision_.parameters == DType::f32 ? "" : precision_text(precision_)},
                       settings_, state);
        fs::create_directories(settings_.output_dir);
        write_file_atomically(settings_.output_dir / card_file, card);
    }

    const RunArguments& run_;
    const Arguments& arguments_;
    const RunProcesses& processes_;
    const Speech& speech_;
    const Messages& messages_;
    const OutputFolder* folder_;
    std::optional<fs::path> resume_point_;
    bool complete_ = false;
    std::optional<TrainerState> resumed_state_;
    std::optional<LoopState> resumed_loop_;  // absent for a checkpoint of Hugging Face's
    TrainerSettings settings_;
    ModelSource model_;
    TokenSource tokens_;
    std::unique_ptr<Backend> backend_;
    Precision precision_;
    MeshSettings mesh_settings_;
    std::optional<RunMesh> mesh_;
    BatchLayout batches_;
    TrainEngineOptions engine_settings_;
    std::unique_ptr<TrainEngine> engine_;
    std::unique_ptr<EngineModel> engine_model_;
    std::unique_ptr<TrainingData> training_, evaluation_;
    std::optional<ProgressBar> bar_;
    NonFiniteWatch non_finite_watch_;
    RunBanner banner_;
    RunSummary summary_;
    std::optional<CommunicationReport> communication_;
    CheckpointReport checkpoint_report_;
    SignalWatch signals_;
    std::optional<LogPrinter> log_printer_;
    std::optional<EarlyStop> early_stop_;
    std::optional<TensorBoard> tensor_board_;
    std::optional<StepTracer> tracer_;
};

/// The folder of the program, where Hugging Face's parser would look for the file of its script.
fs::path arguments_file() {
    std::error_code ignored;
    return fs::read_symlink("/proc/self/exe", ignored).parent_path() / "run_clm.args";
}

void run_in_process(const RunArguments& run, const RunProcesses& processes, SignalThread& signals) {
    const Arguments& arguments = run.arguments;
    const RunRanks& ranks = processes.ranks;
    check_started_alike(processes, run);
    std::optional<Speech> speech;
    ranks.together([&] { speech.emplace(processes, arguments); });
    const Messages& messages = speech->messages();
    for (const std::string& line : arguments.explanations()) messages.warning(line);
    // Before anything that takes long, and before leftovers of a run that may not have ended are removed.
    std::optional<OutputFolder> folder;
    std::optional<SignalThread::LastAct> unlock;
    if (!arguments.flag("dry_run")) {
        folder.emplace(ranks, arguments, messages);
        unlock.emplace(signals, [&folder] { folder->release_at_once(); });
        folder->take();
    }
    const ClmSetting setting{
        run, processes, *speech, folder ? &*folder : nullptr,
        agree_on_resume_point(ranks, arguments, [&](const std::string& line) { messages.info(line); })};
    messages.info(arguments.settings_text(arguments.flag("dry_run")));
    std::optional<ClmRun> clm;
    const auto together = [&](std::string_view doing, const std::function<void()>& work) {
        ranks.together([&] { explain_failures(doing, work); });
    };
    together("reading the model", [&] { clm.emplace(setting, signals); });
    explain_failures("reading the data", [&] { clm->find_data(); });
    together("choosing the device", [&] { clm->choose_device(); });
    clm->join_mesh();
    together("planning the run", [&] {
        clm->plan();
        clm->describe();
    });
    if (!arguments.flag("dry_run")) explain_failures("training", [&] { clm->go(); });
}

void run_clm(const std::vector<std::string>& words) {
    const LaunchEnvironment launch = read_launch_environment();
    // Before the arguments, which are meant for the processes of that launcher together.
    if (launch.foreign && !asks_for_help(words)) {
        let_first_speak(launch);
        refuse_foreign_launcher(launch, "run_clm …");
    }
    RunArguments run;
    std::exception_ptr refusal;  // of this process; the others may have been given something else
    try {
        run = parse_run_arguments(words, {.environment = read_environment(),
                                          .args_file = arguments_file(),
                                          .world_size = launch.processes});
    } catch (const Error&) {
        if (!launch.has_others()) throw;
        refusal = std::current_exception();
    }
    if (run.asks_for_help) {
        if (launch.rank == 0)
            write_result(run.arguments.flag("help_markdown") ? markdown_page() : help_text());
        return;
    }
    SignalThread signals;  // before anything starts threads
    run_in_processes(launch, world_options(run.arguments, launch), [&](RunProcesses& processes) {
        processes.ranks.together([&] {
            if (refusal) std::rethrow_exception(refusal);
        });
        run_in_process(run, processes, signals);
    });
}

}  // namespace

void add_run_clm_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("run_clm",
                                           "Trains or fine-tunes a model from a run_clm.py command line.\n"
                                           "Example: drover run_clm --config_name config.json "
                                           "--tokenizer_name tokenizer/ --train_file text.txt --do_train "
                                           "--output_dir out");
    command->set_help_flag();
    command->prefix_command();
    command->callback([command] { run_clm(command->remaining()); });
}

}  // namespace drover
