#include <array>

#include "args/argument_table.h"

namespace drover {

std::span<const Argument> hub_arguments() {
    using namespace table;
    static constexpr std::array rows{
        flag("push_to_hub", "no",
             "Upload the model to the Hugging Face Hub: checkpoints as --hub_strategy says, and --output_dir "
             "at the end.")
            .of_command(),
        text("hub_model_id", "", "Repository to upload to, owner/name; unset: the name of --output_dir.")
            .of_command(),
        choice(
            "hub_strategy", "end|every_save|checkpoint|all_checkpoints", "every_save",
            "What is uploaded besides the final files. every_save: the model of each checkpoint, in the "
            "background; checkpoint: also the checkpoint itself, as last-checkpoint; all_checkpoints: also "
            "each checkpoint under its own name.")
            .of_command(),
        text("hub_token", "", "Token for uploads; unset: that of HF_TOKEN or of `drover login`.")
            .of_command()
            .own_of_process(),
        maybe("hub_private_repo", "Whether a new repository is private; unset: as its owner has set.")
            .of_command(),
        flag("hub_always_push", "no",
             "Upload a checkpoint also if the one before is still being uploaded, instead of leaving it out.")
            .of_command(),
        text("hub_revision", "", "Branch to upload to, made if it is not there; unset: main.").of_command(),
        text("push_to_hub_organization", "", "Owner of the repository if --hub_model_id names none.")
            .of_command(),
    };
    return rows;
}

}  // namespace drover
