#include "args/common_settings.h"

#include <fmt/format.h>

#include <limits>

#include "args/argument_value.h"
#include "core/error.h"

namespace drover {

std::string text_or_empty(const Arguments& arguments, std::string_view name) {
    return arguments.optional_text(name).value_or("");
}

std::optional<std::filesystem::path> optional_path(const Arguments& arguments, std::string_view name) {
    const auto text = arguments.optional_text(name);
    return text ? std::optional<std::filesystem::path>(*text) : std::nullopt;
}

void check_context_parallel(const Arguments& arguments) {
    if (const std::int64_t size = arguments.integer("context_parallel_size"); size > 1)
        throw UsageError(
            fmt::format("--context_parallel_size is {}, but context parallelism is not available yet.", size),
            "Leave it out; --tensor_parallel_size, --pipeline_parallel_size and the sharding modes can "
            "spread "
            "a model over processes.");
}

OnNonFinite on_non_finite(const Arguments& arguments) {
    const std::string& text = arguments.text("on_nan");
    return text == "stop" ? OnNonFinite::stop : text == "skip" ? OnNonFinite::skip : OnNonFinite::proceed;
}

LogSettings message_settings(const Arguments& arguments) {
    LogSettings settings{// The output of a dry run is its purpose.
                         .level = arguments.flag("dry_run") ? "info" : arguments.text("log_level"),
                         .on_each_machine = arguments.flag("log_on_each_node"),
                         .folder_of_ranks = optional_path(arguments, "rank_log_dir"),
                         .mesh_details = arguments.flag("spmd_debug")};
    if (arguments.given("log_level_replica")) settings.replica_level = arguments.text("log_level_replica");
    return settings;
}

DeviceSettings device_settings(const Arguments& arguments) {
    return {.device = arguments.text("device"),
            .threads = arguments.optional_integer("threads"),
            .tf32 = arguments.optional_flag("tf32").value_or(false),
            .memory_fraction = arguments.optional_number("memory_fraction"),
            .timeout = std::chrono::seconds(arguments.integer("ddp_timeout")),
            .compare_collectives = arguments.flag("comm_debug"),
            .time_collectives = arguments.flag("comm_stats")};
}

ProfileSettings profile_settings(const Arguments& arguments) {
    ProfileSettings settings{.seconds = static_cast<double>(arguments.integer("profile_duration_ms")) / 1e3,
                             .folder = optional_path(arguments, "profile_logdir"),
                             .pipeline_file = optional_path(arguments, "trace_file_path")};
    if (const std::int64_t epoch = arguments.integer("profile_epoch"); epoch >= 0) settings.epoch = epoch;
    if (const std::int64_t step = arguments.integer("profile_step"); step >= 0) settings.step = step;
    settings.steps = arguments.optional_integer("profile_steps");
    const bool begins_somewhere = settings.epoch || settings.step;
    const bool refused = arguments.given("profile") && !arguments.flag("profile");
    settings.on = !refused && (begins_somewhere || settings.steps || arguments.flag("profile"));
    constexpr std::int64_t usual_steps = 3;
    if (!begins_somewhere && !settings.steps) settings.steps = usual_steps;
    if (settings.steps && !arguments.given("profile_duration_ms"))
        settings.seconds = std::numeric_limits<double>::infinity();
    return settings;
}

/// What the log of a run begins with.
static std::string listing_of(const Arguments& arguments) {
    if (arguments.flag("verbose")) return "All settings:\n" + arguments.settings_text(true);
    const std::string changed = arguments.settings_text(false);
    if (changed.empty()) return "All settings have their defaults.";
    return "Settings that differ from their defaults (--verbose shows all):\n" + changed;
}

SettingsRecord settings_record(const Arguments& arguments, std::span<const std::string_view> compared) {
    SettingsRecord record{.values = arguments.to_json(),
                          .listing = listing_of(arguments),
                          .explanations = arguments.explanations()};
    for (const std::string_view name : compared) record.compared_on_resume.emplace_back(name);
    for (const auto& [name, value] : record.values.items())
        if (!arguments.table().find(name)->may_differ_between_processes)
            record.alike.emplace_back("--" + name, value.dump());
    // What the environment says of this machine is not for the next run, which may be on another one.
    for (const char* name : {"device", "threads"})
        if (arguments.source(name).kind == ArgumentSource::Kind::environment)
            record.values[name] = default_value(*arguments.table().find(name));
    return record;
}

}  // namespace drover
