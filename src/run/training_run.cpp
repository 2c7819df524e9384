#include "run/training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <set>

#include "convert/shard_weights.h"
#include "core/failure.h"
#include "core/json_text.h"
#include "core/number_text.h"
#include "core/stopwatch.h"
#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "model/saved_config.h"
#include "peft/adapter_weights.h"
#include "run/engine_settings.h"
#include "run/lost_updates.h"
#include "run/model_source.h"
#include "run/nxd_checkpoint.h"
#include "run/resume_point.h"
#include "run/run_data.h"
#include "run/sft_source.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/hf_checkpoint.h"
#include "train/engine/train_engine.h"
#include "train/state/learning_rate.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* state_file = "trainer_state.json";

TrainerState saved_state(const fs::path& folder) {
    const fs::path file = folder / state_file;
    return TrainerState::parse(read_text_file(file), file.string());
}

/// Nothing if it has no readable config, as may happen with a checkpoint of the Trainer; naming a config is
/// then enough to resume.
std::optional<ModelConfig> config_of_checkpoint(const fs::path& folder) {
    try {
        return ModelConfig::from_path(folder);
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

TrainingRun::TrainingRun(RunSettings settings, const Processes& processes, SignalThread* signals)
    : settings_(std::move(settings)), processes_(processes), signals_(signals) {
    settings_.loop.is_world_process_zero = processes_.is_first();
    settings_.loop.is_local_process_zero = processes_.machine.rank == 0;
    processes_.group.together([&] { log_.emplace(processes_, settings_.logs); });
    for (const std::string& line : settings_.record.explanations) messages().warning(line);
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::together(std::string_view doing, const std::function<void()>& work) const {
    processes_.group.together([&] { explain_failures(doing, work); });
}

// -------------------------------------------------------------------------------------------------------
// the output folder

void TrainingRun::lock_output_folder() {
    if (settings_.loop.output_dir.empty()) return;
    folder_.emplace(processes_.group, messages(),
                    OutputFolderRequest{.folder = settings_.loop.output_dir,
                                        .steal_lock = settings_.checkpoints.steal_lock,
                                        .names = settings_.names});
    if (signals_ != nullptr) unlock_at_end_.emplace(*signals_, [this] { folder_->release_at_once(); });
    folder_->take();
    if (settings_.do_train)
        resume_point_ = agree_on_resume_point(processes_.group, settings_,
                                              [this](const std::string& line) { say(line); });
}

void TrainingRun::unlock_output_folder() {
    if (engine_model_) engine_model_->finish_writing();
    unlock_at_end_.reset();
    folder_.reset();
}

// -------------------------------------------------------------------------------------------------------
// model and rows

void TrainingRun::read() {
    say(settings_.record.listing);
    together("reading the model", [&] {
        model_ = find_model_source(settings_.model, settings_.names);
        if (settings_.adapters && model_.weights.empty())
            throw Error("Adapters need the weights of a model, but this one starts from random ones.",
                        "Name a model with --model_name_or_path, or leave --use_peft out.");
        find_adapters();
    });
    if (!model_.config.has_experts())
        for (const char* name : {"gmm", "gmm_stack", "static"})
            if (settings_.record.values.value(name, false))
                messages().warning(fmt::format("--{} is not used, because the model has no experts.", name));
    explain_failures("reading the data", [&] {
        check_models_alike(processes_, model_);
        if (settings_.do_train || settings_.do_eval)
            tokens_ = find_tokens_together(processes_, settings_, model_, messages());
    });
}

void TrainingRun::take(RunInputs inputs) {
    model_ = std::move(inputs.model);
    tokens_ = std::move(inputs.tokens);
    together("reading the adapters", [&] { find_adapters(); });
    check_models_alike(processes_, model_);
    check_rows_alike(processes_, tokens_);
}

void TrainingRun::find_adapters() {
    if (!settings_.adapters) return;
    const std::string& named = settings_.model.model_name_or_path;
    adapters_ = RunAdapters::find(*settings_.adapters, settings_.model, model_.config,
                                  named.empty() ? model_.weights.string() : named,
                                  [this](const std::string& line) { messages().warning(line); });
    if (!model_.config.tie_word_embeddings || !adapters_->adapters.change_vocabulary()) return;
    model_.config.separate_head();
    messages().warning(
        "The embedding is also the output head in this model. As in PEFT, only what was named is trained; "
        "the "
        "other stays as it was, and merging makes them two weights.");
}

// -------------------------------------------------------------------------------------------------------
// the plan

void TrainingRun::choose_device() {
    together("choosing the device", [&] {
        mesh_plan_ = plan_mesh(settings_.mesh, model_.config, processes_.group.size(), processes_.machine);
        for (const std::string& line : mesh_plan_.explanations) messages().warning(line);
        backend_ = make_process_backend(settings_.device, processes_.machine);
    });
}

void TrainingRun::plan() {
    mesh_.emplace(processes_.world, processes_.group, mesh_plan_, *backend_);
    together("planning the run", [&] { make_engine(); });
    const bool fits_batch = settings_.device.fit_batch && settings_.do_train;
    if (fits_batch) fit_batch();
    if (!adapters_ || settings_.step.fp8 == Fp8Recipe::none || plan_fits()) return;
    const std::size_t kept = planned_bytes();
    keeps_frozen_fp8_ = false;
    together("planning the run", [&] { make_engine(); });
    const std::size_t without = planned_bytes();
    if (kept == without) return;  // sharded weights have no copies
    if (fits_batch) fit_batch();  // beside the copies there was no room for one row
    if (!plan_fits()) return;     // check_memory() says so
    messages().warning(
        fmt::format("The copies of the frozen weights in FP8 ({}) do not fit into memory, so these weights "
                    "are quantised for every product. The numbers are the same.",
                    bytes_text(kept - without)));
}

std::size_t TrainingRun::planned_bytes() const {
    return memory_[static_cast<std::size_t>(largest_rank(memory_))].device.total;
}

bool TrainingRun::plan_fits() const {
    return processes_.group.largest(planned_bytes() > limits().allowed_bytes() ? 1 : 0) == 0;
}

void TrainingRun::fit_batch() {
    const std::int64_t rows = engine_options_.model.rows;
    std::int64_t fitting = 0;
    together("looking for a batch that fits",
             [&] { fitting = limits().fitting_rows(model_.config, engine_options_); });
    fitting = -processes_.group.largest(static_cast<int>(-fitting));  // the smallest of all ranks'
    if (fitting == 0 || fitting == rows) return;  // check_memory() says why not even one row fits
    TrainerSettings& loop = settings_.loop;
    const std::int64_t given = loop.per_device_train_batch_size;
    loop.per_device_train_batch_size = fitting * batches_.part.replicas;
    messages().warning(fmt::format(
        "A batch of {} does not fit into memory. --auto_find_batch_size takes {}, the largest that does.",
        counted(given, "row"), loop.per_device_train_batch_size));
    together("planning the run", [&] { make_engine(); });
}

void TrainingRun::make_engine() {
    TrainerSettings& loop = settings_.loop;
    precision_ = chosen_precision(settings_, model_.config.dtype, backend_->device());
    if (adapters_) precision_ = RunAdapters::precision(precision_);
    batches_ = deal_batches(mesh_plan_, **mesh_, tokens_.packing.packing, loop);
    batches_.row_multiple = std::lcm(batches_.row_multiple, tokens_.pad_to_multiple_of);
    tokens_.row_length = batches_.padded(tokens_.row_length);
    const std::int64_t rows = batches_.part.rows_of(settings_.do_train ? loop.per_device_train_batch_size
                                                                       : loop.per_device_eval_batch_size);
    engine_options_ = engine_options(settings_, precision_, model_.config, mesh_plan_, backend_->device(),
                                     rows, std::max<std::int64_t>(tokens_.row_length, 1));
    if (adapters_) engine_options_.model.adapters = adapters_->adapters;
    engine_options_.model.keeps_frozen_fp8 = keeps_frozen_fp8_;
    engine_ = std::make_unique<TrainEngine>(model_.config, engine_options_, *backend_, **mesh_);
    if (mesh_plan_.shape.pp == 1)
        memory_ = {{.device = engine_->memory_plan(), .host = engine_->host_memory_plan()}};
    else
        memory_ = plan_pipeline_memory(model_.config, engine_options_, *backend_, **mesh_);
    if (settings_.samples && settings_.do_eval) plan_samples();
    engine_model_ = std::make_unique<EngineModel>(
        *engine_, model_.config, *backend_, **mesh_, [this](const fs::path& folder) { write_texts(folder); },
        CheckpointOptions{.with_optimizer = !settings_.checkpoints.save_only_model,
                          .buffer_bytes = limits().checkpoint_buffer(*engine_),
                          .facts = facts(),
                          .rewrite = rewriting()});
    if (settings_.do_train) training_ = training_data(settings_, loop, model_, tokens_, batches_);
    if (settings_.do_eval) evaluation_ = evaluation_data(settings_, loop, model_, tokens_, batches_);
}

void TrainingRun::plan_samples() {
    const auto& sft = settings_.data.sft;
    if (!samples_)
        samples_.emplace(*settings_.samples, model_, find_tokenizer_folder(settings_.model, settings_.names),
                         sft ? sft->chat_template_path : "", sft.has_value());
    if (!processes_.is_first()) return;  // the first process generates for all
    samples_->plan(precision_.parameters, *backend_);
    memory_.front().device += samples_->memory_plan();
}

/// The files that accompany saved weights. Adapters have no config of the model.
void TrainingRun::write_texts(const fs::path& folder) const {
    if (adapters_) {
        adapters_->write_texts(folder);
        write_run_texts(folder, model_.tokenizer.get(), settings_.record.values);
    } else {
        write_model_texts(folder, model_.config, engine_->saved_dtype(), model_.generation,
                          model_.tokenizer.get(), settings_.record.values);
    }
    if (settings_.data.sft) write_sft_texts(folder, settings_);
}

/// What turns checkpoints into those of neuronx-distributed, if they are asked for.
CheckpointOptions::Rewrite TrainingRun::rewriting() const {
    if (!settings_.checkpoints.nxd) return {};
    NxdExport exported{.layout = *settings_.checkpoints.nxd,
                       .mesh = mesh_plan_.shape,
                       .chunks = settings_.mesh.pipeline.chunks,
                       .key_value_copies = settings_.mesh.key_value_copies.value_or(std::max<std::int64_t>(
                           1, mesh_plan_.shape.tp / model_.config.num_key_value_heads)),
                       .shards_optimizer = settings_.mesh.sharding == Sharding::zero1,
                       .adamw = settings_.optimizer.adamw,
                       .batch = facts().total_batch,
                       .values = settings_.record.values};
    if (precision_.master) exported.rounded = precision_.parameters;
    check_nxd_export(model_.config, exported);
    return
        [this, exported](const fs::path& folder, const LoopState& loop, const EngineState& engine) mutable {
            exported.learning_rate =
                LearningRate(settings_.loop, settings_.loop.max_steps).rate(loop.schedule_steps);
            rewrite_as_nxd(folder, model_.config, exported, loop, engine);
        };
}

RunFacts TrainingRun::facts() const {
    const TrainerSettings& loop = settings_.loop;
    return {
        .data = tokens_.train_hash,
        .tokenizer = model_.tokenizer ? model_.tokenizer->fingerprint() : "",
        .total_batch = loop.per_device_train_batch_size * loop.replicas * loop.gradient_accumulation_steps};
}

StepPlan TrainingRun::planned() const {
    return Trainer(settings_.loop, *engine_model_, training_.get(), nullptr).plan();
}

void TrainingRun::check_memory() const {
    limits().check(memory_, model_.config, engine_options_, settings_.loop.gradient_accumulation_steps,
                   batches_.part.replicas);
}

// -------------------------------------------------------------------------------------------------------
// a run that was made before

bool TrainingRun::is_complete() {
    int complete = 0;
    processes_.group.together([&] {
        // The state is the last file a run writes.
        const fs::path& output = settings_.loop.output_dir;
        if (!processes_.is_first() || !resume_point_ || !fs::exists(output / state_file)) return;
        if (settings_.checkpoints.save_final_model && !holds_weights(output)) return;
        const std::int64_t done = saved_state(*resume_point_).global_step, wanted = planned().max_steps;
        if (done < wanted || earlier_end() < wanted) return;
        using From = ResumeSettings::From;
        const From from = settings_.checkpoints.resume.from;
        say(fmt::format("Training is already complete: {}. Nothing of it is written again; {} starts over.",
                        done == wanted ? fmt::format("{} of {} steps", done, wanted)
                                       : fmt::format("{} steps are done, {} were requested", done, wanted),
                        settings_.checkpoints.overwrite_output_dir
                            ? fmt::format("--overwrite_output_dir without --{}",
                                          from == From::step ? "loading_step" : "resume_from_checkpoint")
                            : "--overwrite_output_dir"));
        if (const std::string differences = what_changed(); !differences.empty())
            messages().warning("Warning: The complete run differs from the requested one: " + differences);
        complete = 1;
    });
    complete_ = processes_.group.largest(complete) != 0;
    return complete_;
}

/// The state of the run in the output folder.
TrainerState TrainingRun::completed_state() const {
    return saved_state(settings_.loop.output_dir);
}

/// The step at which that run ended; 0 if unknown.
std::int64_t TrainingRun::earlier_end() const {
    try {
        return completed_state().global_step;
    } catch (const Error&) {
        return 0;  // then it is written again
    }
}

/// The model that the complete run ended with.
fs::path TrainingRun::trained_model() const {
    if (settings_.checkpoints.save_final_model) return settings_.loop.output_dir;
    if (settings_.loop.load_best_model_at_end && resumed_state_->best_model_checkpoint)
        return *resumed_state_->best_model_checkpoint;
    return *resume_point_;
}

/// One line for each thing in which this run differs from the checkpoint's.
std::string TrainingRun::what_changed() const {
    std::string lines;
    const SettingsRecord& record = settings_.record;
    const fs::path values = *resume_point_ / "training_args.json";
    if (fs::exists(values))
        lines += changed_values(record.compared_on_resume, record.values, read_json_file(values));
    if (const auto config = config_of_checkpoint(*resume_point_))
        lines += changed_config(model_.config, *config);
    if (!is_hf_checkpoint(*resume_point_) && !is_nxd_checkpoint(*resume_point_))
        lines += changed_facts(facts(), RunFacts::from(CheckpointManifest::read(*resume_point_).state));
    return lines;
}

// -------------------------------------------------------------------------------------------------------
// weights

void TrainingRun::prepare(const ReadWeight& in_memory) {
    begin_push();
    // None of these is collective, and an error that occurs on all ranks is shown once.
    processes_.group.together([&] {
        engine_->allocate();
        if (samples_ && samples_->generates()) samples_->allocate();
    });
    const Stopwatch preparation;
    const bool takes_model = in_memory && (!resume_point_ || adapters_);
    if (takes_model) engine_->take_weights(from_embedding(in_memory), settings_.loop.seed);
    if (takes_model && adapters_) {
        adapters_->config.set_base_model("");
        messages().warning(
            "The adapters belong to a model that is in memory only: save it before this run to use them.");
    }
    processes_.group.together([&] {
        if (adapters_) {
            if (!takes_model) load_model();
            prepare_adapters();
        } else if (!takes_model) {
            prepare_weights();
        }
    });
    align_config();
    callbacks_.emplace(WatchedRun{
        .settings = settings_,
        .processes = processes_,
        .log = *log_,
        .signals = signals_,
        .backend = *backend_,
        .engine = *engine_,
        .mesh = mesh(),
        .communication_times = [this] { return mesh_->communication_times(); },
        .observe_collectives = [this](CollectiveObserver* observer,
                                      UnderWay under_way) { mesh_->observe(observer, under_way); },
        .measure_peak =
            [this] {
                return limits().peak_of_all(backend_->measure_peaks().reference_flops(precision_.parameters));
            },
        .config_text = model_.config.saved_text(engine_->saved_dtype()),
        .model_type = model_.config.json.value("model_type", ""),
        .make_samples = samples_ ? EvalSamples::Generate([this] {
            return samples_->generate(*engine_, adapters_ ? adapters_->adapters : Adapters{}, *backend_,
                                      mesh());
        })
                                 : EvalSamples::Generate()});
    trainer_.emplace(
        settings_.loop, *engine_model_, training_.get(), evaluation_.get(),
        TrainerOptions{.model_preparation_seconds = preparation.seconds(), .before_writing = [this] {
                           if (folder_) folder_->check_still_ours();
                       }});
    callbacks_->add_to(*trainer_);
    if (push_ != nullptr) trainer_->add_callback(*push_);
    for (TrainerCallback* callback : more_callbacks_) trainer_->add_callback(*callback);
    if (complete_) trainer_->adopt(*resumed_state_);
}

void TrainingRun::prepare_weights() {
    if (complete_) {
        check_resume_point();
        resumed_state_ = saved_state(*resume_point_);
        engine_model_->load(trained_model());
    } else if (resume_point_) {
        resume();
    } else {
        load_model();
    }
}

/// The weights that a run starts from.
void TrainingRun::load_model() {
    if (model_.weights.empty()) {
        say(fmt::format("Training new model from scratch - Total size={:.2f}M params",
                        static_cast<double>(parameters().total) / (1 << 20)));
        engine_->initialize_weights(model_.seed.value_or(settings_.loop.seed));
    } else if (holds_shards(model_.weights)) {
        load_shards();
    } else {
        const LoadReport report = engine_->load_weights(model_.weights, settings_.loop.seed);
        if (const std::string text = report.text(); !text.empty()) messages().warning(text);
    }
}

/// The model's own weights are there.
void TrainingRun::prepare_adapters() {
    if (complete_ || resume_point_) return prepare_weights();
    if (adapters_->start.empty()) return engine_->initialize_adapters(settings_.loop.seed);
    const AdapterWeights start(adapters_->start, model_.config);
    engine_->load_adapters([&](const LeafSpec& leaf) { return start.find(leaf.name); });
    say(fmt::format("Going on from the adapters in {}.", adapters_->start.string()));
}

/// Takes the weights that `read` returns for the leaves of which this process keeps a part.
void TrainingRun::take_kept_leaves(const ReadWeight& read) {
    std::set<std::string_view> here;
    for (const OwnedLeaf& leaf : engine_->store().owned()) here.insert(leaf.spec->name);
    engine_->take_weights(
        [&](const LeafSpec& leaf) { return here.contains(leaf.name) ? read(leaf) : std::vector<float>{}; },
        settings_.loop.seed);
}

void TrainingRun::load_shards() {
    const ShardWeights shards(model_.weights, model_.config);
    say(fmt::format("The weights of {} are those of {} tensor-parallel and {} pipeline ranks.",
                    model_.weights.string(), shards.sizes().tensor, shards.sizes().pipeline));
    take_kept_leaves(
        from_embedding([&](const LeafSpec& leaf) { return shards.read(leaf.name, leaf.shape.numel()); }));
}

/// The same, but the head that was the embedding starts as that.
TrainingRun::ReadWeight TrainingRun::from_embedding(ReadWeight read) const {
    if (!model_.config.head_from_embedding) return read;
    return [read = std::move(read)](const LeafSpec& leaf) {
        if (leaf.name != head_leaf) return read(leaf);
        LeafSpec embedding = leaf;
        embedding.name = embedding_leaf;
        return read(embedding);
    };
}

/// Continues what neuronx-distributed began.
void TrainingRun::resume_nxd() {
    const NxdCheckpoint checkpoint(*resume_point_, model_.config);
    resumed_state_ = TrainerState::of_other_program(checkpoint.step());
    take_kept_leaves([&](const LeafSpec& leaf) { return checkpoint.weight(leaf); });
    engine_->load_optimizer(checkpoint);
    engine_->set_counters({.updates = checkpoint.updates(), .scaler = std::nullopt});
}

/// Error unless the checkpoint has adapters just if this run trains them, and the same ones.
void TrainingRun::check_resume_point() const {
    if (adapters_)
        adapters_->check_same(*resume_point_, model_.config);
    else
        refuse_adapters_of(*resume_point_);
}

void TrainingRun::resume_prepared() {
    if (resume_point_) processes_.group.together([&] { resume(); });
}

void TrainingRun::resume() {
    check_resume_point();
    if (is_nxd_checkpoint(*resume_point_)) {
        resume_nxd();
    } else {
        resumed_state_ = saved_state(*resume_point_);
        resumed_loop_ = engine_model_->resume(*resume_point_);
    }
    const StepPlan plan = planned();
    const TrainerState fresh = TrainerState::begin(settings_.loop, plan.max_steps, plan.epochs);
    resumed_state_->take_unknown_steps(fresh);
    if (const std::string warning = changed_settings(settings_.loop, fresh, *resumed_state_);
        !warning.empty())
        messages().warning(warning);
    if (const std::string differences = what_changed(); !differences.empty())
        messages().warning("Warning: The resumed run will differ from the one that was stopped: " +
                           differences);
    say("  Continuing training from checkpoint, will skip to saved global_step");
    say(fmt::format("  Continuing training from epoch {}",
                    resumed_state_->global_step / plan.updates_per_epoch));
    say(fmt::format("  Continuing training from global step {}", resumed_state_->global_step));
}

/// As in Hugging Face, the saved config has the tokenizer's special tokens and use_cache turned off, since
/// training turns it off.
void TrainingRun::align_config() {
    model_.config.json["use_cache"] = settings_.model.saves_use_cache;
    if (!model_.tokenizer) return;
    const Tokenizer& tokenizer = *model_.tokenizer;
    const std::optional<TokenId> pad = tokens_.pad_id ? tokens_.pad_id : tokenizer.pad();
    const std::optional<TokenId> named =
        settings_.data.sft ? tokenizer.find(sft_eos_token(settings_)) : std::nullopt;
    const std::vector<std::string> aligned =
        align_special_tokens({.bos = tokenizer.bos(), .eos = named ? named : tokenizer.eos(), .pad = pad},
                             model_.config, model_.generation);
    if (!aligned.empty() && !adapters_)
        messages().warning(
            fmt::format("The tokenizer's {} {} from the model's config; the saved config and generation "
                        "config have the tokenizer's.",
                        fmt::join(aligned, ", "), aligned.size() == 1 ? "differs" : "differ"));
}

// -------------------------------------------------------------------------------------------------------
// training and evaluation

Json TrainingRun::train() {
    if (const std::string lost =
            lost_updates_warning(*engine_, engine_options_, settings_.loop.learning_rate);
        !lost.empty())
        messages().warning(lost);
    const std::optional<TrainerState> state = std::exchange(resumed_state_, {});
    const std::optional<LoopState> loop = std::exchange(resumed_loop_, {});
    return trainer_->train(state ? &*state : nullptr, loop ? &*loop : nullptr);
}

Json TrainingRun::train_or_stop() {
    Json metrics = train();
    if (!trainer_->interrupted()) return metrics;
    const int number = callbacks_->ended_by();
    const std::int64_t step = trainer_->state().global_step;
    if (!settings_.checkpoints.save_on_signals)
        throw StoppedBySignal(
            number,
            fmt::format("Stopped by {} after step {}, which is not saved.", signal_name(number), step),
            "This run writes no checkpoints.");
    if (!trainer_->save_failure().empty())
        throw StoppedBySignal(
            number,
            fmt::format("Stopped by {} after step {}, which could not be saved.", signal_name(number), step),
            trainer_->save_failure());
    throw StoppedBySignal(
        number,
        fmt::format("Stopped by {} after step {}, which is saved in {}.", signal_name(number), step,
                    checkpoint_folder(checkpoint_place(settings_), step).string()),
        settings_.checkpoints.overwrite_output_dir
            ? "The same command without --overwrite_output_dir continues from there."
            : "The same command continues from there.");
}

Json TrainingRun::evaluate() {
    return trainer_->evaluate();
}

}  // namespace drover
