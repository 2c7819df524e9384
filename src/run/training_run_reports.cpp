#include <fmt/format.h>
#include <omp.h>

#include <cmath>

#include "core/console.h"
#include "core/number_text.h"
#include "core/text_file.h"
#include "core/this_process.h"
#include "run/engine_settings.h"
#include "run/mesh_report.h"
#include "run/mixture_report.h"
#include "run/process_limits.h"
#include "run/resume_point.h"
#include "run/training_run.h"
#include "train/checkpoint/model_card.h"
#include "train/checkpoint/results_files.h"
#include "train/engine/communication_plan.h"
#include "train/engine/train_engine.h"

/// What a TrainingRun logs before training, and what it writes afterwards.
namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* card_file = "README.md";

}  // namespace

// -------------------------------------------------------------------------------------------------------
// before

void TrainingRun::describe() const {
    together("planning the run", [&] {
        say(fmt::format("{}; {} parameters ({} active); {}", backend_->description(),
                        with_thousands(parameters().total), with_thousands(parameters().active),
                        precision_text(precision_, settings_.step.fp8)));
        if (adapters_) say(adapters_->text(model_.config));
        describe_mesh();
        describe_memory();
        if (backend_->reserved_bytes() > 0)
            say(fmt::format("Besides, CUDA's libraries take up to {} of the GPU.",
                            bytes_text(backend_->reserved_bytes())));
        if (settings_.logs.mesh_details)
            say(placement_table(engine_->store().spec(), **mesh_, mesh_plan_.sharding,
                                precision_.parameters));
        if (training_) describe_steps();
        check_memory();
        if (backend_->device() == Device::cpu && processes_.alone())
            if (const std::string hint = busy_machine_hint(omp_get_max_threads()); !hint.empty()) say(hint);
    });
}

void TrainingRun::describe_memory() const {
    const int largest = largest_rank(memory_);
    const RankMemory& plan = memory_[static_cast<std::size_t>(largest)];
    say(fmt::format("Memory{}:\n{}",
                    memory_.size() == 1 ? "" : fmt::format(" of pipeline rank {}, the largest", largest),
                    plan.device.table()));
    if (plan.host.total > 0) say("In the host's memory:\n" + plan.host.table());
}

void TrainingRun::describe_pipeline() const {
    if (mesh_plan_.shape.pp == 1) return;
    say(pipeline_table(pipeline(), memory_, settings_.do_train));
    if (!settings_.do_train) return;
    say(bubble_text(pipeline(), mesh_plan_.balances_pipeline));
    if (const std::string turns = uneven_turns_text(pipeline()); !turns.empty()) say(turns);
    if (const std::string whole = whole_backwards_text(pipeline()); !whole.empty()) messages().warning(whole);
}

void TrainingRun::describe_mesh() const {
    if (processes_.alone()) return;
    say(mesh_table(mesh_plan_, processes_.machine, engine_options_.sequence_parallel,
                   settings_.logs.mesh_details));
    describe_pipeline();
    if (!settings_.do_train) return;
    say(batch_text(mesh_plan_, settings_.loop.per_device_train_batch_size));
    say(communication_table(plan_communication(model_.config, engine_options_, **mesh_, backend_->device(),
                                               settings_.loop.gradient_accumulation_steps)));
}

void TrainingRun::describe_steps() const {
    const StepPlan plan = planned();
    const double tokens = plan.trained_samples * static_cast<double>(tokens_.row_length);
    say(fmt::format("{}, {} of {}, about {} tokens",
                    plan.streamed
                        ? "Rows as they are read"
                        : fmt::format("{}, {}", counted(plan.examples, "row"), counted(plan.epochs, "epoch")),
                    counted(plan.max_steps, "update"), counted(plan.total_batch_size, "row"),
                    with_thousands(static_cast<std::int64_t>(tokens))));
    if (settings_.data.datasets.size() > 1)
        say(mixture_table(settings_.data, tokens_.train.dataset_rows,
                          static_cast<std::int64_t>(plan.trained_samples)));
    settings_.record.check_updates(plan.max_steps);
    // One process measures while the others wait, since they may share its processors.
    if (settings_.dry_run && processes_.is_first())
        say(time_estimate(tokens, parameters().active,
                          limits().peak_of_all(backend_->measure_peaks().flops(precision_.parameters)),
                          processes_.group.size(),
                          mesh_plan_.shape.pp == 1 ? 0 : bubble_fraction(pipeline())));
    if (settings_.loop.save_strategy != IntervalStrategy::no) say(checkpoint_text());
    warn_of_little_space();
}

void TrainingRun::warn_of_little_space() const {
    if (const std::string warning = space_text(); !warning.empty()) messages().warning(warning);
}

std::string TrainingRun::checkpoint_text() const {
    const std::uint64_t bytes =
        engine_->saved_tensors(!settings_.checkpoints.save_only_model, SaveModelOptions{}.max_shard_bytes)
            .part_bytes();
    const std::uint64_t buffer = limits().checkpoint_buffer(*engine_);
    return fmt::format(
        "{} has about {}; it is written {}.",
        processes_.alone() ? "A checkpoint" : "A process's part of a checkpoint", bytes_text(bytes),
        settings_.loop.waits_for_checkpoints ? std::string("while training waits")
        : bytes <= buffer ? fmt::format("in the background from a copy of {} in memory", bytes_text(bytes))
                          : fmt::format("while training waits, because it does not fit a buffer of {} "
                                        "(--save_buffer_gb)",
                                        bytes_text(buffer)));
}

/// The space needed by the first file to be written: a checkpoint, or the model alone.
std::string TrainingRun::space_text() const {
    const bool checkpoints = settings_.loop.save_strategy != IntervalStrategy::no;
    if (!checkpoints && !settings_.checkpoints.save_final_model) return "";
    const bool with_optimizer = checkpoints && !settings_.checkpoints.save_only_model;
    return space_warning(
        settings_.loop.output_dir,
        engine_->saved_tensors(with_optimizer, SaveModelOptions{}.max_shard_bytes).file_bytes(),
        checkpoints ? "A checkpoint" : "The model", settings_.names);
}

// -------------------------------------------------------------------------------------------------------
// afterwards

void TrainingRun::write_training_results(Json metrics) {
    if (settings_.checkpoints.save_final_model) engine_model_->save(settings_.loop.output_dir);
    metrics["train_samples"] = samples(trainer_->plan().examples, settings_.data.max_train_samples);
    if (settings_.checkpoints.result_files) {
        report("train", metrics);
        trainer_->save_state();
    }
    if (const int late = processes_.group.largest(callbacks_->release_signals()); late != 0)
        throw StoppedBySignal(late, fmt::format("Stopped by {}, when training had ended.", signal_name(late)),
                              fmt::format("The model is in {}.", settings_.loop.output_dir.string()));
    if (const fs::path profile = callbacks_->profile(); !profile.empty())
        say(fmt::format("The profile is in {}, for ui.perfetto.dev; TensorBoard shows it with --logdir {}.",
                        profile.string(),
                        profile.parent_path().parent_path().parent_path().parent_path().string()));
}

void TrainingRun::write_evaluation_results(Json metrics) {
    folder_->check_still_ours();
    metrics["eval_samples"] = samples(evaluation_->samples(), settings_.data.max_eval_samples);
    metrics["perplexity"] = std::exp(metrics.at("eval_loss").get<double>());
    report("eval", metrics);
}

/// A stream's number of samples is the requested one, as run_clm.py reports it, otherwise the number read.
std::int64_t TrainingRun::samples(std::int64_t known, std::optional<std::int64_t> asked) const {
    return settings_.data.streaming ? asked.value_or(known) : known;
}

void TrainingRun::report(std::string_view split, const Json& metrics) const {
    if (!processes_.is_first()) return;
    fs::create_directories(settings_.loop.output_dir);
    write_log(stdout, metrics_table(split, metrics));
    save_metrics(settings_.loop.output_dir, split, metrics);
}

/// Makes the repository before anything is computed, so that a wrong token is noticed then. Collective.
void TrainingRun::begin_push() {
    if (!settings_.push) return;
    together("preparing the upload", [&] {
        if (processes_.is_first() && push_ == nullptr)
            push_ = std::make_unique<HubPush>(*settings_.push, settings_.loop.output_dir,
                                              [this](const std::string& line) { messages().warning(line); });
    });
}

/// Uploads the output folder. Collective.
void TrainingRun::push_files() {
    if (!settings_.push) return;
    begin_push();
    together("uploading the files", [&] {
        if (push_ != nullptr) say(fmt::format("Uploaded: {}", push_->push_output_folder()));
    });
}

void TrainingRun::conclude() {
    write_conclusion();
    push_files();
}

void TrainingRun::write_conclusion() {
    if (trainer_)
        say(fmt::format("This process had at most {} of memory resident.",
                        bytes_text(static_cast<std::size_t>(peak_resident_bytes()))));
    if (!processes_.is_first()) return;
    if (!settings_.checkpoints.result_files) return say_where_files_are();
    // A complete run may have been killed before it wrote its last file.
    const bool lacks_card = !fs::exists(settings_.loop.output_dir / card_file);
    if (!complete_ || lacks_card) write_card(trainer_ ? trainer_->state() : completed_state());
    if (!trainer_) return;
    write_log(stdout, callbacks_->summary());
    say_where_files_are();
}

void TrainingRun::say_where_files_are() const {
    if (const fs::path file = callbacks_->tensor_board_file(); !file.empty())
        say(fmt::format("TensorBoard's file is {}.", file.string()));
    if (!settings_.loop.output_dir.empty())
        say(fmt::format("The files are in {}.", settings_.loop.output_dir.string()));
}

void TrainingRun::write_card(const TrainerState& state) const {
    std::vector<std::string> datasets;
    for (const NamedDataset& dataset : settings_.data.datasets) datasets.push_back(dataset.name);
    const std::string card = model_card(
        {.name = settings_.loop.output_dir.filename().string(),
         .base_model = adapters_ ? adapters_->config.base_model : settings_.model.model_name_or_path,
         .datasets = datasets,
         .drover_version = DROVER_VERSION,
         .optimizer = settings_.optimizer.name,
         .precision =
             precision_.parameters == DType::f32 ? "" : precision_text(precision_, settings_.step.fp8),
         .peft_version = adapters_ ? std::string(peft_version) : ""},
        settings_.loop, state);
    fs::create_directories(settings_.loop.output_dir);
    write_file_atomically(settings_.loop.output_dir / card_file, card);
}

}  // namespace drover
