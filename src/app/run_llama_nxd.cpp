#include "app/commands.h"
#include "app/training_command.h"
#include "args/command.h"
#include "args/nxd_settings.h"

namespace drover {

void add_run_llama_nxd_command(const Command& app) {
    const Command command = app.add_command(
        "run_llama_nxd",
        "Train a Llama model with tensor and pipeline parallelism from a run_llama_nxd.py command line.\n"
        "Example: drover launch --nproc_per_node 8 run_llama_nxd --training_config 70B_config_llama3 "
        "--training_dir ~/examples_datasets/wikicorpus_llama3_tokenized_8k --lr 1.5e-5");
    command.without_help();
    command.take_words();
    command.set_action([command] {
        run_training_command(run_llama_nxd_table(), command.words(),
                             [](std::span<const std::string> words, const ParseOptions& options) {
                                 return nxd_run_settings(parse_nxd_arguments(words, options));
                             });
    });
}

}  // namespace drover
