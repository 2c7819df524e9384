#include "args/argument_table.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace drover {
namespace {

constexpr std::array aliases{
    ArgumentAlias{"torch_dtype", "dtype"},
    ArgumentAlias{"evaluation_strategy", "eval_strategy"},
    ArgumentAlias{"no_cuda", "use_cpu"},
    ArgumentAlias{"per_gpu_train_batch_size", "per_device_train_batch_size"},
    ArgumentAlias{"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    ArgumentAlias{"push_to_hub_token", "hub_token"},
    ArgumentAlias{"push_to_hub_model_id", "hub_model_id"},
    ArgumentAlias{"xla_cache_path", "tuning_cache"},
    ArgumentAlias{"gc_cnt", "recompute_blocks"},
    // run_llama_nxd.py
    ArgumentAlias{"lr", "learning_rate"},
    ArgumentAlias{"beta1", "adam_beta1"},
    ArgumentAlias{"beta2", "adam_beta2"},
    ArgumentAlias{"seq_len", "block_size"},
    ArgumentAlias{"training_config", "config_name"},
    ArgumentAlias{"training_dir", "dataset_name"},
    ArgumentAlias{"pretrained_weight_dir", "model_name_or_path"},
    ArgumentAlias{"logging_interval", "logging_steps"},
    ArgumentAlias{"use_amp", "bf16"},
    ArgumentAlias{"use_flash_attention", "flash_attention"},
    ArgumentAlias{"use_sequence_parallel", "sequence_parallel"},
};

}  // namespace

ArgumentTable::ArgumentTable(std::string_view command, std::span<const ArgumentGroup> groups,
                             std::span<const ArgumentAlias> aliases)
    : command_(command), groups_(groups), aliases_(aliases) {
    for (const ArgumentGroup& group : groups_)
        for (const Argument& argument : group.arguments)
            require(index_.emplace(argument.name, &argument).second, "an argument is in the table twice");
    for (const ArgumentAlias& alias : aliases_) {
        const auto meant = index_.find(alias.stands_for);
        require(meant != index_.end(), "an alias of an argument that is not in the table");
        require(index_.emplace(alias.name, meant->second).second, "an alias is also an argument");
    }
    for (const auto& [name, argument] : index_) {
        names_.emplace_back(name);
        if (argument->type == ArgumentType::boolean) names_.push_back("no_" + std::string(name));
    }
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
}

const Argument* ArgumentTable::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() || found->second->name != name ? nullptr : found->second;
}

const ArgumentGroup& ArgumentTable::group_of(const Argument& argument) const {
    for (const ArgumentGroup& group : groups_)
        for (const Argument& one : group.arguments)
            if (one.name == argument.name) return group;
    bug("an argument that is not in the table");
}

std::string_view ArgumentTable::first_name_of(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? std::string_view{} : found->second->name;
}

const ArgumentTable& run_clm_table() {
    static const std::array groups{
        ArgumentGroup{"run", "Run", "What to do, and where to put it.", run_arguments()},
        ArgumentGroup{"model", "Model", "Which model, tokenizer and number format.", model_arguments()},
        ArgumentGroup{"adapters", "Adapters",
                      "Train low-rank adapters (LoRA) beside weights that stay as they are.",
                      peft_arguments()},
        ArgumentGroup{"data", "Data", "Where the text comes from and how it becomes blocks of tokens.",
                      data_arguments()},
        ArgumentGroup{
            "finetuning", "Supervised fine-tuning",
            "How examples become tokens, and what is learned. `drover sft` takes TRL's command lines "
            "as they are.",
            run_clm_sft_arguments()},
        ArgumentGroup{"optimization", "Optimization", "Batches, steps, optimizer and learning rate.",
                      optimization_arguments()},
        ArgumentGroup{"precision", "Precision and memory", "Number formats of a run and what is recomputed.",
                      precision_arguments()},
        ArgumentGroup{"evaluation", "Evaluation", "When and how to evaluate.", evaluation_arguments()},
        ArgumentGroup{"logging", "Logging", "What is printed and recorded.", logging_arguments()},
        ArgumentGroup{"saving", "Saving and resuming", "Which files are kept.", saving_arguments()},
        ArgumentGroup{"uploads", "Uploads", "What is sent to the Hugging Face Hub (docs/hub.md).",
                      hub_arguments()},
        ArgumentGroup{"loading", "Data loading",
                      "How batches reach the model; none of these changes a number unless "
                      "it says so.",
                      loading_arguments()},
        ArgumentGroup{"parallel", "Several processes",
                      "Always checked; with one process there is nothing to split.", parallel_arguments()},
        ArgumentGroup{"profiling", "Profiling and diagnosis", "Traces, scope names and tuning files.",
                      profile_arguments()},
        ArgumentGroup{"nxd", "Names of run_llama_nxd.py",
                      "Flags of the tensor- and pipeline-parallel script, in this program's terms. `drover "
                      "run_llama_nxd` takes its "
                      "command lines as they are.",
                      neuron_arguments()},
        ArgumentGroup{"explained", "Accepted and explained",
                      "Flags of the original script that have no effect here; each prints one line.",
                      explained_arguments()},
    };
    static const ArgumentTable table("run_clm", groups, aliases);
    return table;
}

const ArgumentTable* table_of_command(std::string_view command) {
    for (const ArgumentTable* table : {&run_clm_table(), &run_llama_nxd_table(), &sft_table()})
        if (table->command() == command) return table;
    return nullptr;
}

}  // namespace drover
