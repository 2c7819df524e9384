#include "run/resume_point.h"

#include <fmt/format.h>

#include "io/model_folder.h"
#include "io/staged_folder.h"
#include "run/settings/run_settings.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/checkpoint_tensors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using Say = std::function<void(const std::string&)>;

/// Prevents overwriting another run's files by accident. `fresh_start_reason` is the setting that asks not to
/// resume from there, if any.
void check_nothing_is_lost(const RunSettings& settings, const std::string& fresh_start_reason) {
    const fs::path& folder = settings.loop.output_dir;
    const std::string named = fmt::format("{} {}", settings.names.output_dir, folder.string());
    const std::string remedy = fmt::format("Choose another folder, or {}.", settings.names.start_over);
    const bool has_model = fs::exists(folder / "trainer_state.json") || holds_weights(folder);
    const bool has_checkpoints = !checkpoints_by_age(checkpoint_place(settings)).empty();
    if (has_checkpoints && !fresh_start_reason.empty())
        throw Error(fmt::format("{}, but {} holds checkpoints of an earlier run.", fresh_start_reason, named),
                    remedy);
    if (has_checkpoints)
        throw Error(fmt::format("{} holds checkpoints, but none that a run can resume from.", named), remedy);
    if (has_model) throw Error(fmt::format("{} already holds a trained model.", named), remedy);
}

/// The checkpoint of a step.
fs::path numbered_checkpoint(const CheckpointPlace& output, std::int64_t step) {
    const fs::path folder = checkpoint_folder(output, step);
    if (fs::is_directory(folder)) {
        if (const auto damage = why_not_resumable(folder))
            throw Error(fmt::format("--loading_step {}: {} is not a complete checkpoint: {}.", step,
                                    folder.string(), *damage),
                        "Name another step, or latest_if_exists.");
        return folder;
    }
    std::string names;
    for (const fs::path& known : checkpoints_by_age(output))
        names += (names.empty() ? "" : ", ") + known.filename().string();
    throw Error(fmt::format("--loading_step {}: there is no {}.", step, folder.string()),
                names.empty() ? fmt::format("{} holds no checkpoints.", output.folder.string())
                              : fmt::format("There are {}.", names));
}

fs::path named_checkpoint(const fs::path& folder) {
    if (!fs::is_directory(folder))
        throw Error(fmt::format("--resume_from_checkpoint {} is not a folder.", folder.string()),
                    "Name a checkpoint-N folder, or leave it out to resume from the newest in --output_dir.");
    if (const auto damage = why_not_resumable(folder))
        throw Error(fmt::format("--resume_from_checkpoint {} is not a complete checkpoint: {}.",
                                folder.string(), *damage),
                    "Name another checkpoint, or leave it out to resume from the newest complete one in "
                    "--output_dir.");
    return folder;
}

}  // namespace

bool holds_weights(const fs::path& folder) {
    return fs::exists(folder / single_weights_file) || fs::exists(folder / weights_index_file) ||
           fs::exists(folder / adapter_file);
}

CheckpointPlace checkpoint_place(const RunSettings& settings) {
    return {settings.loop.output_dir, settings.loop.checkpoint_prefix};
}

std::optional<fs::path> find_resume_point(const RunSettings& settings, const Say& say) {
    using From = ResumeSettings::From;
    const ResumeSettings& resume = settings.checkpoints.resume;
    const fs::path& output = settings.loop.output_dir;
    const CheckpointPlace place = checkpoint_place(settings);
    for (const std::string& name : remove_partial_folders(output))
        say(fmt::format("Removed {}, which an interrupted save left in {}.", name, output.string()));
    switch (resume.from) {
        case From::nowhere:
            if (!settings.checkpoints.overwrite_output_dir) check_nothing_is_lost(settings, resume.asked_by);
            return std::nullopt;
        case From::nowhere_unchecked:
            return std::nullopt;
        case From::step:
            return numbered_checkpoint(place, resume.step);
        case From::folder:
            return named_checkpoint(resume.folder);
        case From::newest:
        case From::newest_if_any:
            break;
    }
    const std::optional<fs::path> newest = newest_complete_checkpoint(place, say);
    if (resume.from == From::newest) {
        if (newest) return newest;
        throw Error(fmt::format("{}, but {} holds no complete checkpoint.", resume.asked_by, output.string()),
                    "Name a checkpoint folder, or leave it out to start over.");
    }
    if (newest)
        say(
            fmt::format("Checkpoint detected, resuming training at {}. To avoid this behavior, change the "
                        "`{}` or {}.",
                        newest->string(), settings.names.output_dir, settings.names.start_over));
    else
        check_nothing_is_lost(settings, "");
    return newest;
}

std::optional<fs::path> agree_on_resume_point(const ProcessGroup& group, const RunSettings& settings,
                                              const Say& say) {
    std::string found;
    group.together([&] {
        if (!group.is_first()) return;
        if (const auto point = find_resume_point(settings, say)) found = point->string();
    });
    found = group.from_first(found);
    return found.empty() ? std::nullopt : std::optional<fs::path>(found);
}

}  // namespace drover
