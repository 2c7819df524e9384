#include "app/run_clm_resume.h"

#include <fmt/format.h>

#include "args/argument_value.h"
#include "io/model_folder.h"
#include "io/staged_folder.h"
#include "train/checkpoint/checkpoint_folders.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using Say = std::function<void(const std::string&)>;

/// A folder that holds another run's files is not written over by accident. `asked_not_to`: what asks not to
/// go on from there, if something does.
void check_nothing_is_lost(const fs::path& folder, const std::string& asked_not_to) {
    const bool has_model = fs::exists(folder / "trainer_state.json") || holds_weights(folder);
    const bool has_checkpoints = !checkpoints_by_age(folder).empty();
    if (has_checkpoints && !asked_not_to.empty())
        throw Error(fmt::format("{}, but --output_dir {} holds checkpoints of an earlier run.", asked_not_to,
                                folder.string()),
                    "Choose another folder, or add --overwrite_output_dir to start anew.");
    if (has_checkpoints)
        throw Error(fmt::format("--output_dir {} holds checkpoints, but none that a run can go on from.",
                                folder.string()),
                    "Choose another folder, or add --overwrite_output_dir to start anew.");
    if (has_model)
        throw Error(fmt::format("--output_dir {} already holds a trained model.", folder.string()),
                    "Choose another folder, or add --overwrite_output_dir.");
}

/// The checkpoint of a step.
fs::path numbered_checkpoint(const fs::path& output, const std::string& step) {
    const fs::path folder = checkpoint_folder(output, std::stoll(step));
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
                names.empty() ? fmt::format("{} holds no checkpoints.", output.string())
                              : fmt::format("There are {}.", names));
}

fs::path named_checkpoint(const fs::path& folder) {
    if (!fs::is_directory(folder))
        throw Error(fmt::format("--resume_from_checkpoint {} is not a folder.", folder.string()),
                    "Name a checkpoint-N folder, or leave it out to go on from the newest in --output_dir.");
    if (const auto damage = why_not_resumable(folder))
        throw Error(fmt::format("--resume_from_checkpoint {} is not a complete checkpoint: {}.",
                                folder.string(), *damage),
                    "Name another checkpoint, or leave it out to go on from the newest complete one in "
                    "--output_dir.");
    return folder;
}

}  // namespace

bool holds_weights(const fs::path& folder) {
    return fs::exists(folder / single_weights_file) || fs::exists(folder / weights_index_file);
}

std::optional<fs::path> find_resume_point(const Arguments& arguments, const Say& say) {
    if (!arguments.flag("do_train") || arguments.flag("dry_run")) return std::nullopt;
    const fs::path output = arguments.text("output_dir");
    for (const std::string& name : remove_partial_folders(output))
        say(fmt::format("Removed {}, which an interrupted save left in {}.", name, output.string()));

    const std::string step = arguments.optional_text("loading_step").value_or("latest_if_exists");
    if (step == "-1") {
        if (!arguments.flag("overwrite_output_dir")) check_nothing_is_lost(output, "--loading_step is -1");
        return std::nullopt;
    }
    if (step != "latest_if_exists") return numbered_checkpoint(output, step);

    const std::optional<std::string> asked = arguments.optional_text("resume_from_checkpoint");
    std::optional<bool> wanted;
    if (asked && !fs::exists(*asked)) wanted = boolean_from_word(*asked);
    if (asked && !wanted) return named_checkpoint(*asked);
    if (!wanted.value_or(true) || (!wanted && arguments.flag("overwrite_output_dir"))) {
        if (!arguments.flag("overwrite_output_dir"))
            check_nothing_is_lost(output, fmt::format("--resume_from_checkpoint is {}", *asked));
        return std::nullopt;
    }

    const std::optional<fs::path> newest = newest_complete_checkpoint(output, say);
    if (newest && !wanted)
        say(
            fmt::format("Checkpoint detected, resuming training at {}. To avoid this behavior, change the "
                        "`--output_dir` or add `--overwrite_output_dir` to train from scratch.",
                        newest->string()));
    if (!newest && wanted)
        throw Error(fmt::format("--resume_from_checkpoint is {}, but {} holds no complete checkpoint.",
                                *asked, output.string()),
                    "Name a checkpoint folder, or leave it out to start anew.");
    if (!newest) check_nothing_is_lost(output, "");
    return newest;
}

std::optional<fs::path> agree_on_resume_point(const RunRanks& ranks, const Arguments& arguments,
                                              const Say& say) {
    std::string found;
    ranks.together([&] {
        if (!ranks.is_first()) return;
        if (const auto point = find_resume_point(arguments, say)) found = point->string();
    });
    found = ranks.from_first(found);
    return found.empty() ? std::nullopt : std::optional<fs::path>(found);
}

}  // namespace drover
