#include "app/commands.h"
#include "app/training_command.h"
#include "args/command.h"
#include "args/run_settings.h"
#include "core/this_process.h"

namespace drover {
namespace {

/// The program's folder, corresponding to the script's folder in Hugging Face's parser.
std::filesystem::path arguments_file() {
    return program_path().parent_path() / "run_clm.args";
}

void run_clm(const std::vector<std::string>& words) {
    run_training_command(run_clm_table(), words,
                         [](std::span<const std::string> flags, ParseOptions options) {
                             options.args_file = arguments_file();
                             return run_settings(parse_run_arguments(flags, options));
                         });
}

}  // namespace

void add_run_clm_command(const Command& app) {
    const Command command = app.add_command("run_clm",
                                            "Train or fine-tune a model from a run_clm.py command line.\n"
                                            "Example: drover run_clm --config_name config.json "
                                            "--tokenizer_name tokenizer/ --train_file text.txt --do_train "
                                            "--output_dir out");
    command.without_help();
    command.take_words();
    command.set_action([command] { run_clm(command.words()); });
}

}  // namespace drover
