#include "app/commands.h"
#include "app/training_command.h"
#include "args/command.h"
#include "args/run_settings.h"
#include "args/sft_settings.h"

namespace drover {

void add_sft_command(const Command& app) {
    const Command command = app.add_command(
        "sft",
        "Fine-tune a model on conversations, or prompts with completions, from a command line of TRL's "
        "sft.\n"
        "Example: drover sft --model_name_or_path Qwen/Qwen2-0.5B --dataset_name conversations.jsonl "
        "--packing --output_dir out");
    command.without_help();
    command.take_words();
    command.set_action([command] {
        run_training_command(sft_table(), command.words(),
                             [](std::span<const std::string> words, const ParseOptions& options) {
                                 return run_settings(parse_sft_arguments(words, options));
                             });
    });
}

}  // namespace drover
