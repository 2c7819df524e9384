#include "run/run_callbacks.h"

#include <unistd.h>

#include <algorithm>

#include "core/python_json.h"
#include "core/stopwatch.h"
#include "run/settings/run_settings.h"

namespace drover {
namespace {

NxdRecordSettings nxd_record_settings(const WatchedRun& run) {
    const TrainerSettings& loop = run.settings.loop;
    const LogSettings& logs = run.settings.logs;
    const std::int64_t batch = loop.per_device_train_batch_size * loop.gradient_accumulation_steps;
    const int replicas = run.mesh.replicas().size();
    const std::filesystem::path data = run.settings.data.datasets.front().name;
    NxdRecordSettings settings{
        .interval = static_cast<std::int64_t>(loop.logging_steps.value_or(1)),
        .sequences = batch * replicas,
        .metrics_file = logs.metrics_file,
        .parameters = Json{{"Model", run.model_type},
                           {"World size", run.processes.group.size()},
                           {"Data parallel degree", replicas},
                           {"Batch size", batch},
                           {"Total steps", loop.max_steps},
                           {"Seed", loop.seed},
                           {"Warmup steps", static_cast<std::int64_t>(loop.warmup_steps)},
                           {"Dataset", (data / "").parent_path().filename().string()}},
        .now = [watch = Stopwatch()] { return watch.seconds(); }};
    if (logs.tensor_board_folder)
        settings.tensor_board = *logs.tensor_board_folder / nxd_tensor_board_folder(loop);
    return settings;
}

ProfilerSettings profiler_settings(const RunSettings& settings) {
    const ProfileSettings& profile = settings.profile;
    ProfilerSettings made{.steps = profile.steps,
                          .seconds = profile.seconds,
                          .folder = profile.folder.value_or(settings.loop.output_dir / "profile")};
    if (profile.epoch || profile.step)
        made.after = {.epoch = profile.epoch.value_or(0), .step = profile.step.value_or(0)};
    return made;
}

}  // namespace

RunCallbacks::RunCallbacks(const WatchedRun& run) : non_finite_watch_(run.settings.step.on_non_finite) {
    const RunSettings& settings = run.settings;
    const LogSettings& logs = settings.logs;
    const Messages& messages = run.log.messages();
    const bool first = run.processes.is_first();
    const bool with_bar = first && !logs.disable_progress_bar.value_or(!messages.shows_warnings());
    // Measuring takes a moment, so it is done only if someone may be watching.
    if (with_bar) bar_.emplace(isatty(STDERR_FILENO) != 0 ? run.measure_peak() : 0);
    if (messages.shows_info()) banner_.emplace();
    const bool nxd = logs.records == LogSettings::Records::nxd;
    if (nxd && first) nxd_records_.emplace(nxd_record_settings(run));
    if (std::FILE* records = run.log.records(); records != nullptr && !nxd)
        log_printer_.emplace(
            logs.records == LogSettings::Records::json ? LogFormat::json : LogFormat::hugging_face_5,
            with_bar ? LogStyle::beside_bar : LogStyle::plain, records);
    if (settings.device.time_collectives) {
        if (run.processes.alone())
            messages.warning("--comm_stats: one process alone has no collectives.");
        else
            communication_.emplace(run.communication_times);
    }
    if (const auto patience = settings.loop.early_stopping_patience)
        early_stop_.emplace(*patience, settings.loop.early_stopping_threshold);
    if (first && logs.tensor_board && !nxd)
        tensor_board_.emplace(
            logs.tensor_board_folder.value_or(settings.loop.output_dir / default_tensor_board_folder()),
            python_json(settings.record.values, 2), run.config_text);
    if (run.make_samples) {
        const auto show = [this, &messages](std::int64_t step, const std::string& text) {
            messages.info(text);
            if (tensor_board_) tensor_board_->add_text(step, "eval_samples", text);
        };
        eval_samples_.emplace(
            run.make_samples,
            first ? settings.loop.output_dir / "eval_samples.jsonl" : std::filesystem::path(), show,
            [&messages](const std::string& line) { messages.warning(line); });
    }
    if (run.signals != nullptr) {
        SignalWatch::Agree agree;
        if (!run.processes.alone())
            agree = [&group = run.processes.group](int own) { return group.largest(own); };
        signals_.emplace(*run.signals, std::move(agree), settings.checkpoints.save_on_signals);
    }
    if (settings.profile.on)
        profiler_.emplace(run.backend, run.mesh, profiler_settings(settings), run.observe_collectives,
                          [&messages](const std::string& line) { messages.info(line); });
    if (const auto& file = settings.profile.pipeline_file)
        pipeline_trace_.emplace(run.engine, run.backend, run.mesh, *file,
                                [&messages](const std::string& line) { messages.info(line); });
}

void RunCallbacks::add_to(Trainer& trainer) {
    const auto add = [&](auto& callback) {
        if (callback) trainer.add_callback(*callback);
    };
    add(bar_);
    trainer.add_callback(non_finite_watch_);  // may end the run, so it comes before those that print
    add(banner_);
    add(log_printer_);
    trainer.add_callback(summary_);
    add(communication_);
    add(early_stop_);
    add(tensor_board_);
    add(eval_samples_);
    add(nxd_records_);
    trainer.add_callback(checkpoint_report_);
    add(signals_);
    add(profiler_);  // before others that put marks, which it forgets
    add(pipeline_trace_);
}

std::filesystem::path RunCallbacks::profile() const {
    return profiler_ ? profiler_->written() : std::filesystem::path();
}

std::filesystem::path RunCallbacks::tensor_board_file() const {
    if (nxd_records_) return nxd_records_->written();
    return tensor_board_ ? tensor_board_->written() : std::filesystem::path();
}

std::string RunCallbacks::summary() const {
    return summary_.text() + (communication_ ? communication_->text() : "");
}

}  // namespace drover
