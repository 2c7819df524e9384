#include "args/argument_table.h"

#include <algorithm>
#include <array>
#include <unordered_map>

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

using Index = std::unordered_map<std::string_view, const Argument*>;

Index make_index() {
    Index index;
    for (const ArgumentGroup& group : argument_groups())
        for (const Argument& argument : group.arguments)
            require(index.emplace(argument.name, &argument).second, "an argument is in the table twice");
    for (const ArgumentAlias& alias : aliases) {
        const auto meant = index.find(alias.stands_for);
        require(meant != index.end(), "an alias of an argument that is not in the table");
        require(index.emplace(alias.name, meant->second).second, "an alias is also an argument");
    }
    return index;
}

const Index& argument_index() {
    static const Index index = make_index();
    return index;
}

}  // namespace

std::span<const ArgumentGroup> argument_groups() {
    static const std::array groups{
        ArgumentGroup{"Run", "What to do, and where to put it.", run_arguments()},
        ArgumentGroup{"Model", "Which model, tokenizer and number format.", model_arguments()},
        ArgumentGroup{"Data", "Where the text comes from and how it becomes blocks of tokens.",
                      data_arguments()},
        ArgumentGroup{"Optimization", "Batches, steps, optimizer and learning rate.",
                      optimization_arguments()},
        ArgumentGroup{"Precision and memory", "Number formats of a run and what is recomputed.",
                      precision_arguments()},
        ArgumentGroup{"Evaluation", "When and how to evaluate.", evaluation_arguments()},
        ArgumentGroup{"Logging", "What is printed and recorded.", logging_arguments()},
        ArgumentGroup{"Saving and resuming", "Which files are kept.", saving_arguments()},
        ArgumentGroup{"Data loading",
                      "How batches reach the model; none of these changes a number unless "
                      "it says so.",
                      loading_arguments()},
        ArgumentGroup{"Several processes", "Always checked; with one process there is nothing to split.",
                      parallel_arguments()},
        ArgumentGroup{"Profiling and diagnosis", "Traces, scope names and tuning files.",
                      profile_arguments()},
        ArgumentGroup{"Names of run_llama_nxd.py",
                      "Flags of the tensor- and pipeline-parallel script, in this program's terms.",
                      neuron_arguments()},
        ArgumentGroup{"Accepted and explained",
                      "Flags of the original script that have no effect here; each prints one line.",
                      explained_arguments()},
    };
    return groups;
}

std::span<const ArgumentAlias> argument_aliases() {
    return aliases;
}

const Argument* find_argument(std::string_view name) {
    const auto found = argument_index().find(name);
    return found == argument_index().end() || found->second->name != name ? nullptr : found->second;
}

std::string_view first_name_of(std::string_view name) {
    const auto found = argument_index().find(name);
    return found == argument_index().end() ? std::string_view{} : found->second->name;
}

std::span<const std::string> all_argument_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const auto& [name, argument] : argument_index()) {
            all.emplace_back(name);
            if (argument->type == ArgumentType::boolean) all.push_back("no_" + std::string(name));
        }
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        return all;
    }();
    return names;
}

}  // namespace drover
