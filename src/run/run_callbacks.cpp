#include "run/run_callbacks.h"

#include <unistd.h>

#include <algorithm>

#include "core/python_text.h"
#include "run/settings/run_settings.h"

namespace drover {

RunCallbacks::RunCallbacks(const WatchedRun& run) : non_finite_watch_(run.settings.step.on_non_finite) {
    const RunSettings& settings = run.settings;
    const LogSettings& logs = settings.logs;
    const Messages& messages = run.log.messages();
    const bool first = run.processes.is_first();
    const bool with_bar = first && !logs.disable_progress_bar.value_or(!messages.shows_warnings());
    // Measuring takes a moment, so it is done only if someone may be watching.
    if (with_bar) bar_.emplace(isatty(STDERR_FILENO) != 0 ? run.measure_peak() : 0);
    if (messages.shows_info()) banner_.emplace();
    if (std::FILE* records = run.log.records())
        log_printer_.emplace(logs.records_are_json ? LogFormat::json : LogFormat::hugging_face_5,
                             with_bar ? LogStyle::beside_bar : LogStyle::plain, records);
    if (settings.device.time_collectives) {
        if (run.processes.alone())
            messages.warning("--comm_stats: one process alone has no collectives.");
        else
            communication_.emplace(run.communication_times);
    }
    if (const auto patience = settings.loop.early_stopping_patience)
        early_stop_.emplace(*patience, settings.loop.early_stopping_threshold);
    if (first && logs.tensor_board)
        tensor_board_.emplace(
            logs.tensor_board_folder.value_or(settings.loop.output_dir / default_tensor_board_folder()),
            python_json(settings.record.values, 2), run.config_text);
    if (run.signals != nullptr) {
        SignalWatch::Agree agree;
        if (!run.processes.alone())
            agree = [&group = run.processes.group](int own) { return group.largest(own); };
        signals_.emplace(*run.signals, std::move(agree));
    }
    if (const ProfileSettings& profile = settings.profile; first && (profile.epoch || profile.step))
        tracer_.emplace(
            run.backend,
            TraceSettings{.epoch = profile.epoch.value_or(0),
                          .step = profile.step.value_or(0),
                          .seconds = profile.seconds,
                          .folder = profile.folder.value_or(settings.loop.output_dir / "profile")});
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
    trainer.add_callback(checkpoint_report_);
    add(signals_);
    add(tracer_);
    add(pipeline_trace_);
}

std::filesystem::path RunCallbacks::trace() const {
    return tracer_ ? tracer_->written() : std::filesystem::path();
}

std::filesystem::path RunCallbacks::tensor_board_file() const {
    return tensor_board_ ? tensor_board_->written() : std::filesystem::path();
}

std::string RunCallbacks::summary() const {
    return summary_.text() + (communication_ ? communication_->text() : "");
}

}  // namespace drover
