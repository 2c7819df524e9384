#include "app/run_clm_resume.h"

#include <fmt/format.h>

#include "args/argument_value.h"
#include "io/model_folder.h"
#include "io/staged_folder.h"
#include "train/checkpoint_folders.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using Say = std::function<void(const std::string&)>;

/// A folder that holds another run's files is not written over by accident.
void check_nothing_is_lost(const fs::path& folder) {
    const bool has_model = fs::exists(folder / "trainer_state.json") ||
                           fs::exists(folder / single_weights_file) ||
                           fs::exists(folder / weights_index_file);
    const bool has_checkpoints = !checkpoints_by_age(folder).empty();
    if (has_checkpoints)
        throw Error(fmt::format("--output_dir {} holds checkpoints, but none that a run can go on from.",
                                folder.string()),
                    "Choose another folder, or add --overwrite_output_dir to start anew.");
    if (has_model)
        throw Error(fmt::format("--output_dir {} already holds a trained model.", folder.string()),
                    "Choose another folder, or add --overwrite_output_dir.");
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

std::optional<fs::path> find_resume_point(const Arguments& arguments, const Say& say) {
    if (!arguments.flag("do_train") || arguments.flag("dry_run")) return std::nullopt;
    const fs::path output = arguments.text("output_dir");
    if (fs::exists(output) && !fs::is_directory(output))
        throw Error(fmt::format("--output_dir {} is a file.", output.string()), "Name a folder.");
    for (const std::string& name : remove_partial_folders(output))
        say(fmt::format("Removed {}, which an interrupted save left in {}.", name, output.string()));

    const std::optional<std::string> asked = arguments.optional_text("resume_from_checkpoint");
    std::optional<bool> wanted;
    if (asked && !fs::exists(*asked)) wanted = boolean_from_word(*asked);
    if (asked && !wanted) return named_checkpoint(*asked);
    if (!wanted.value_or(true) || (!wanted && arguments.flag("overwrite_output_dir"))) {
        if (!arguments.flag("overwrite_output_dir")) check_nothing_is_lost(output);
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
    if (!newest) check_nothing_is_lost(output);
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
