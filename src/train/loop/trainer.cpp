#include "train/loop/trainer.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "core/host_spans.h"
#include "core/python_text.h"
#include "core/text_file.h"
#include "train/loop/evaluation.h"
#include "train/state/agreed_error.h"

namespace drover {

Trainer::Trainer(TrainerSettings settings, TrainingModel& model, TrainingData* training,
                 TrainingData* evaluation, TrainerOptions options)
    : settings_(std::move(settings)),
      model_(model),
      training_(training),
      evaluation_(evaluation),
      options_(std::move(options)),
      parameters_(model.parameters()) {
    state_.is_local_process_zero = settings_.is_local_process_zero;
    state_.is_world_process_zero = settings_.is_world_process_zero;
    state_.train_batch_size = settings_.per_device_train_batch_size;
}

StepPlan Trainer::plan() const {
    require(training_ != nullptr, "a plan without training data");
    return make_step_plan(settings_, training_->batches_per_epoch(), training_->samples());
}

// ------------------------------------------------------------------------------------------------------------
// the run

Json Trainer::train(const TrainerState* resumed, const LoopState* loop) {
    begin_state(resumed, loop);
    next_batch_ = first_batch(loop);
    std::int64_t first_epoch = next_batch_.epoch;
    std::int64_t first_update = next_batch_.step / settings_.gradient_accumulation_steps;
    batches_ = training_->open(next_batch_);
    ahead_.reset();  // of a run that ended with an error

    training_watch_ = Stopwatch();
    control_.should_training_stop = state_.global_step >= plan_.max_steps;
    control_.interrupted = false;
    tell(&TrainerCallback::on_train_begin);
    if (settings_.eval_on_start) evaluate();

    {
        const HostSpan span("Train loop");
        if (plan_.streamed && !control_.should_training_stop) {
            first_epoch = peek().position.epoch;
            first_update = peek().position.step / settings_.gradient_accumulation_steps;
        }
        for (std::int64_t epoch = first_epoch; epoch < plan_.epochs && !control_.should_training_stop;
             ++epoch)
            run_epoch(epoch, epoch == first_epoch ? first_update : 0);
    }
    const HostSpan span("Post train loop");
    batches_.reset();
    ahead_.reset();
    settle_checkpoint(true);
    if (!control_.interrupted) return finish_training();
    tell(&TrainerCallback::on_train_end);
    return nullptr;
}

void Trainer::adopt(const TrainerState& ended) {
    state_ = ended;
    trained_ = true;
}

/// The position in the epoch at which to resume. Hugging Face counts updates. The loop's state counts
/// samples, so it finds the position even if the batch size has changed.
BatchPosition Trainer::first_batch(const LoopState* loop) const {
    const std::int64_t accumulation = settings_.gradient_accumulation_steps;
    BatchPosition first{state_.global_step / plan_.updates_per_epoch,
                        state_.global_step % plan_.updates_per_epoch * accumulation};
    if (loop != nullptr && plan_.streamed) {
        first = {loop->epoch, loop->samples / (settings_.per_device_train_batch_size * settings_.replicas)};
    } else if (loop != nullptr) {
        const std::int64_t samples_per_update =
            settings_.per_device_train_batch_size * settings_.replicas * accumulation;
        first = {loop->epoch, loop->samples / samples_per_update * accumulation};
        if (first.step >= plan_.batches_per_epoch) first = {loop->epoch + 1, 0};
    }
    if (settings_.ignore_data_skip) first.step = 0;
    return first;
}

void Trainer::begin_state(const TrainerState* resumed, const LoopState* loop) {
    plan_ = plan();
    learning_rate_.emplace(settings_, plan_.max_steps);
    state_ = TrainerState::begin(settings_, plan_.max_steps, plan_.epochs);
    if (resumed != nullptr) {
        const TrainerState fresh = state_;
        state_ = *resumed;
        state_.max_steps = fresh.max_steps;
        state_.num_train_epochs = fresh.num_train_epochs;
        state_.is_local_process_zero = fresh.is_local_process_zero;
        state_.is_world_process_zero = fresh.is_world_process_zero;
        for (TrainerCallback* callback : callbacks_) callback->import_state(state_.stateful_callbacks);
        for (const Json& record : state_.log_history)
            if (record.contains("eval_loss") && record.at("step") != 0)
                learning_rate_->observe(settings_, record);
    }
    export_callback_states();
    trained_ = true;
    tokens_seen_before_ = state_.num_input_tokens_seen;
    schedule_steps_ = last_logged_step_ = state_.global_step;
    loss_sum_ = 0;
    predicted_ = {};
    total_loss_ = pending_flos_ = 0;
    trained_tokens_ = 0;
    has_checkpoint_ = resumed != nullptr;
    save_failure_.clear();
    if (loop == nullptr) return;
    schedule_steps_ = loop->schedule_steps;
    last_logged_step_ = loop->last_logged_step;
    loss_sum_ = loop->loss_sum;
    predicted_ = loop->predicted;
    total_loss_ = loop->total_loss;
}

void Trainer::run_epoch(std::int64_t epoch, std::int64_t first_update) {
    control_.should_epoch_stop = false;
    tell(&TrainerCallback::on_epoch_begin);
    std::optional<StepReport> last_step;
    for (std::int64_t update = first_update; update < plan_.updates_per_epoch && !stream_left_epoch(epoch);
         ++update) {
        last_step = run_step(epoch, update);
        control_.after_step(settings_, state_);
        tell(&TrainerCallback::on_step_end, *last_step);
        settle_checkpoint(false);
        log_evaluate_save(last_step);
        if (control_.interrupted) return;
        if (control_.should_epoch_stop || control_.should_training_stop) break;
    }
    control_.after_epoch(settings_, state_);
    tell(&TrainerCallback::on_epoch_end);
    log_evaluate_save(last_step);
}

StepReport Trainer::run_step(std::int64_t epoch, std::int64_t update) {
    control_.should_save = control_.should_evaluate = control_.should_log = false;
    tell(&TrainerCallback::on_step_begin);
    const Stopwatch watch;
    StepReport report{
        .epoch = epoch, .step_in_epoch = update, .learning_rate = learning_rate_->rate(schedule_steps_)};
    const std::vector<Batch> window = next_window(epoch, update, report);
    report.update = model_.update(window, report.learning_rate);
    add_loss(report.update.loss);
    if (settings_.sft_records) {
        predicted_.entropy_sum += report.update.entropy_sum;
        predicted_.accuracy_sum += report.update.accuracy_sum;
        predicted_.micro_batches += static_cast<std::int64_t>(window.size());
    }
    if (report.update.updated) ++schedule_steps_;
    ++state_.global_step;
    trained_tokens_ += report.tokens;
    state_.epoch = static_cast<double>(last_batch_.epoch) +
                   static_cast<double>(last_batch_.step + 1) / static_cast<double>(plan_.batches_per_epoch);
    next_batch_ = {last_batch_.epoch, last_batch_.step + 1};
    if (!plan_.streamed && next_batch_.step == plan_.batches_per_epoch)
        next_batch_ = {last_batch_.epoch + 1, 0};
    report.seconds = options_.seconds(watch);
    return report;
}

std::vector<Batch> Trainer::next_window(std::int64_t epoch, std::int64_t update, StepReport& report) {
    std::vector<Batch> window;
    const auto count = static_cast<std::size_t>(plan_.window(update, settings_.gradient_accumulation_steps));
    while (window.size() < count) {
        peek();
        std::optional<Batch> batch = std::exchange(ahead_, std::nullopt);
        if (batch->position.epoch < epoch) continue;  // the rest of an epoch that was stopped
        last_batch_ = batch->position;
        const Batch::Whole whole = batch->whole();
        const std::int64_t rows = whole.rows * settings_.replicas;
        const std::int64_t tokens = rows * batch->row_length;
        report.tokens += tokens;
        report.samples += rows;
        report.id_sum = std::accumulate(batch->ids.begin(), batch->ids.end(), report.id_sum);
        pending_flos_ +=
            6.0 * static_cast<double>(tokens) * static_cast<double>(parameters_.without_embeddings);
        if (settings_.include_num_input_tokens_seen == CountTokens::all)
            state_.num_input_tokens_seen += tokens;
        else if (settings_.include_num_input_tokens_seen == CountTokens::non_padding || settings_.sft_records)
            state_.num_input_tokens_seen += whole.attended_tokens * settings_.replicas;
        window.push_back(std::move(*batch));
    }
    return window;
}

const Batch& Trainer::peek() {
    if (!ahead_) {
        const HostSpan span("wait for data");
        ahead_ = batches_->next();
    }
    require(ahead_.has_value(), "training data that ends");
    return *ahead_;
}

/// Only the next batch of a stream shows that an epoch has ended. (Where lengths are known, no batch is read
/// ahead.)
bool Trainer::stream_left_epoch(std::int64_t epoch) {
    return plan_.streamed && peek().position.epoch > epoch;
}

/// With the filter on, a loss that is NaN or infinite counts as the mean so far.
void Trainer::add_loss(double loss) {
    if (settings_.logging_nan_inf_filter && !std::isfinite(loss))
        loss_sum_ += loss_sum_ / static_cast<float>(1 + state_.global_step - last_logged_step_);
    else
        loss_sum_ += static_cast<float>(loss);
}

Json Trainer::finish_training() {
    total_loss_ += static_cast<double>(loss_sum_);
    Json metrics = Json::object();
    add_speed_metrics(metrics, "train", options_.seconds(training_watch_), trained_work());
    store_flos();
    metrics["total_flos"] = state_.total_flos;
    metrics["train_loss"] = total_loss_ / std::max(static_cast<double>(state_.global_step), 0.001);
    log(metrics, false);

    if (settings_.load_best_model_at_end && state_.best_model_checkpoint)
        model_.load(*state_.best_model_checkpoint);
    options_.before_writing();
    if (settings_.is_world_process_zero && state_.best_model_checkpoint && settings_.save_total_limit == 1)
        keep_only_checkpoint(checkpoints(), *state_.best_model_checkpoint);
    tell(&TrainerCallback::on_train_end);
    return metrics;
}

/// Adds `<split>_runtime`, `<split>_samples_per_second` and so on, rounded as Hugging Face rounds them.
void Trainer::add_speed_metrics(Json& metrics, std::string_view split, double seconds, const WorkDone& work) {
    const std::string prefix(split);
    metrics[prefix + "_runtime"] = python_round(seconds, 4);
    if (seconds == 0) return;
    const auto add_rate = [&](const char* name, const std::optional<double>& amount) {
        if (amount) metrics[prefix + name] = python_round(*amount / seconds, 3);
    };
    add_rate("_samples_per_second", work.samples);
    add_rate("_steps_per_second", work.steps);
    add_rate("_tokens_per_second", work.tokens);
}

Trainer::WorkDone Trainer::trained_work() const {
    WorkDone work{.samples = plan_.trained_samples, .steps = static_cast<double>(plan_.max_steps)};
    if (settings_.include_tokens_per_second && plan_.streamed) {
        work.tokens = static_cast<double>(trained_tokens_);
    } else if (settings_.include_tokens_per_second) {
        const double tokens_per_sample =
            static_cast<double>(training_->tokens_per_epoch()) / static_cast<double>(training_->samples());
        work.tokens = tokens_per_sample * plan_.trained_samples;
    }
    return work;
}

// ------------------------------------------------------------------------------------------- records and
// evaluations

void Trainer::log_evaluate_save(const std::optional<StepReport>& last_step) {
    if (control_.should_log && last_step && state_.global_step > last_logged_step_) log_step(*last_step);
    if (control_.should_evaluate) evaluate_in_training();
    if (control_.should_save) save_checkpoint();
}

void Trainer::log_step(const StepReport& last_step) {
    const auto sum = static_cast<double>(loss_sum_);
    loss_sum_ = 0;
    Json record = Json::object();
    record["loss"] = sum / static_cast<double>(state_.global_step - last_logged_step_);
    record["grad_norm"] = last_step.update.gradient_norm;
    record["learning_rate"] = last_step.learning_rate;
    if (settings_.sft_records) {
        const auto micro_batches = static_cast<double>(predicted_.micro_batches);
        record["entropy"] = predicted_.entropy_sum / micro_batches;
        record["mean_token_accuracy"] = predicted_.accuracy_sum / micro_batches;
    }
    predicted_ = {};
    add_tokens(record, "num_tokens");
    total_loss_ += sum;
    last_logged_step_ = state_.global_step;
    store_flos();
    log(record, true);
}

void Trainer::add_tokens(Json& record, const char* name) const {
    if (settings_.sft_records) record[name] = state_.num_input_tokens_seen;
}

void Trainer::log(Json& record, bool with_token_speed) {
    record["epoch"] = state_.epoch_json();
    if (settings_.include_num_input_tokens_seen != CountTokens::no) {
        record["num_input_tokens_seen"] = state_.num_input_tokens_seen;
        if (with_token_speed)
            add_speed_metrics(
                record, "train", options_.seconds(training_watch_),
                {.tokens = static_cast<double>(state_.num_input_tokens_seen - tokens_seen_before_)});
    }
    Json kept = record;
    kept["step"] = state_.global_step;
    state_.log_history.push_back(std::move(kept));
    control_.should_log = false;
    const HostSpan span("log");
    tell(&TrainerCallback::on_log, record);
}

void Trainer::store_flos() {
    state_.total_flos += pending_flos_;
    pending_flos_ = 0;
}

Json Trainer::evaluate() {
    require(evaluation_ != nullptr, "an evaluation without data");
    const HostSpan span("evaluation");
    tell(&TrainerCallback::on_evaluate_begin, evaluation_->samples());
    const Stopwatch watch;
    const EvaluationSummary summary =
        evaluate_all(model_, *evaluation_, [&](std::int64_t done, std::int64_t batches) {
            tell(&TrainerCallback::on_evaluation_step, done, batches);
        });
    Json metrics = Json::object();
    metrics["eval_loss"] = summary.loss;
    if (!trained_ && options_.model_preparation_seconds)
        metrics["eval_model_preparation_time"] = *options_.model_preparation_seconds;
    if (settings_.sft_records) {
        metrics["eval_entropy"] = summary.mean_batch_entropy;
        metrics["eval_mean_token_accuracy"] = summary.mean_batch_accuracy;
    } else if (!settings_.prediction_loss_only) {
        metrics["eval_accuracy"] = summary.accuracy;
    }
    add_tokens(metrics, "eval_num_tokens");
    const auto samples = static_cast<double>(evaluation_->samples());
    const double batch_size = static_cast<double>(settings_.per_device_eval_batch_size * settings_.replicas);
    add_speed_metrics(metrics, "eval", options_.seconds(watch),
                      {.samples = samples, .steps = std::ceil(samples / batch_size)});
    log(metrics, false);
    control_.should_evaluate = false;
    tell(&TrainerCallback::on_evaluate, metrics);
    return metrics;
}

void Trainer::evaluate_in_training() {
    const Json metrics = evaluate();
    learning_rate_->observe(settings_, metrics);
    const bool is_best = note_best(metrics);
    // A save requested elsewhere, by a signal for example, stays requested.
    if (settings_.save_strategy == IntervalStrategy::best && is_best) control_.should_save = true;
}

bool Trainer::note_best(const Json& metrics) {
    if (settings_.metric_for_best_model.empty()) return false;
    const double value = best_model_metric(settings_, metrics);
    const bool greater = settings_.greater_metric_is_better();
    if (!state_.best_metric) state_.best_metric = greater ? -INFINITY : INFINITY;
    if (greater ? !(value > *state_.best_metric) : !(value < *state_.best_metric)) return false;
    state_.best_metric = value;
    if (settings_.save_strategy != IntervalStrategy::no) state_.best_global_step = state_.global_step;
    return true;
}

// --------------------------------------------------------------------------------------------------------
// checkpoints

void Trainer::save_checkpoint() {
    const HostSpan span("checkpoint");
    settle_checkpoint(true);
    options_.before_writing();
    store_flos();
    const std::filesystem::path folder = checkpoint_folder(checkpoints(), state_.global_step);
    if (state_.best_global_step) {
        const std::filesystem::path best = checkpoint_folder(checkpoints(), *state_.best_global_step);
        if (best == folder || std::filesystem::exists(best)) state_.best_model_checkpoint = best.string();
    }
    export_callback_states();
    best_when_saved_ = state_.best_model_checkpoint;
    model_.save_checkpoint({.folder = folder, .trainer_state = state_.text(), .loop = loop_state()});
    control_.should_save = false;
    settle_checkpoint(settings_.waits_for_checkpoints);
}

/// Older checkpoints are removed only when the new one is complete. If there is none to go back to, a failure
/// ends the run: nothing of it would be left.
void Trainer::settle_checkpoint(bool wait) {
    const std::optional<CheckpointOutcome> outcome = model_.checkpoint_outcome(wait);
    if (!outcome) return;
    save_failure_ = outcome->error;
    if (!save_failure_.empty()) {
        if (!has_checkpoint_) throw AgreedError(save_failure_);
        if (state_.best_model_checkpoint == outcome->folder.string()) state_.best_model_checkpoint.reset();
        tell(&TrainerCallback::on_save_failed, outcome->folder, save_failure_);
        return;
    }
    has_checkpoint_ = true;
    options_.before_writing();
    if (settings_.is_world_process_zero) {
        try {
            rotate_checkpoints(checkpoints(), settings_.save_total_limit, best_when_saved_);
        } catch (const Error& error) {
            // One old checkpoint too many is no reason to end a run; the next save tries again.
            tell(&TrainerCallback::on_rotation_failed, std::string(error.what()));
        }
    }
    tell(&TrainerCallback::on_save, outcome->folder);
}

LoopState Trainer::loop_state() const {
    return {.step = state_.global_step,
            .schedule_steps = schedule_steps_,
            .last_logged_step = last_logged_step_,
            .loss_sum = loss_sum_,
            .predicted = predicted_,
            .total_loss = total_loss_,
            .epoch = next_batch_.epoch,
            .samples = next_batch_.step * settings_.per_device_train_batch_size * settings_.replicas,
            .seed = settings_.seed,
            .data_seed = settings_.data_seed};
}

void Trainer::export_callback_states() {
    for (const TrainerCallback* callback : callbacks_)
        if (const auto exported = callback->exported_state())
            state_.stateful_callbacks[exported->first] = exported->second;
    state_.stateful_callbacks["TrainerControl"] = control_.exported();
}

void Trainer::save_state() const {
    if (!settings_.is_world_process_zero) return;
    std::filesystem::create_directories(settings_.output_dir);
    write_file_atomically(settings_.output_dir / "trainer_state.json", state_.text());
}

}  // namespace drover
