#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "args/argument_table.h"
#include "core/error.h"

/// The table of `drover sft`: names and defaults of TRL's script, with the Trainer's arguments as run_clm has
/// them; and the group of them that run_clm takes, too.
namespace drover {
namespace {

/// The rows of a group of run_clm, some replaced by others of their names, some left out.
std::vector<Argument> changed_rows(std::span<const Argument> rows, std::initializer_list<Argument> changed,
                                   std::initializer_list<std::string_view> without = {}) {
    std::vector<Argument> result;
    for (const Argument& row : rows) {
        if (std::find(without.begin(), without.end(), row.name) != without.end()) continue;
        const auto other = std::find_if(changed.begin(), changed.end(),
                                        [&](const Argument& one) { return one.name == row.name; });
        result.push_back(other == changed.end() ? row : *other);
    }
    return result;
}

std::span<const Argument> sft_run_arguments() {
    using namespace table;
    static const std::vector<Argument> rows = changed_rows(
        run_arguments(), {flag("do_train", "yes", "Train; no: only evaluate."),
                          flag("help_markdown", "no", "Print the page docs/sft.md and stop.").hidden()});
    return rows;
}

std::span<const Argument> sft_model_arguments() {
    using namespace table;
    static constexpr std::array more{
        json("model_init_kwargs",
             "Settings of from_pretrained: dtype, torch_dtype and revision act as the flags; what chooses a "
             "kernel or a device is explained, anything else refused."),
    };
    static const std::vector<Argument> rows = [] {
        std::vector<Argument> all = changed_rows(
            model_arguments(), {choice("dtype", "auto|bfloat16|float16|float32", "float32",
                                       "Number format of the weights; auto: what config.json says.")});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }();
    return rows;
}

std::span<const Argument> sft_data_arguments() {
    using namespace table;
    static constexpr std::array more{
        text("dataset_text_field", "text", "Column of plain text, in rows that are not conversations."),
        flag("packing", "no", "Put several examples into one row, as --packing_strategy says."),
        choice("packing_strategy", "bfd|bfd_split|wrapped|bfd-requeue", "bfd",
               "With --packing: bfd fills rows of --max_length tokens with whole examples that do not see "
               "each other, and cuts those that are too long; bfd_split splits these; wrapped cuts the "
               "examples as one stream. bfd-requeue is the old name of bfd_split."),
        text("pad_token", "", "Token that fills shorter rows; unset: the tokenizer's, or else its EOS."),
        integer("dataset_num_proc", "1",
                "Number of shards that examples are cut into before packing, like TRL's worker processes.")
            .at_least(1),
        flag("shuffle_dataset", "no",
             "Shuffle the examples, by --seed, before they are packed, and the rows afterwards, those of "
             "evaluations too. Training takes rows in random order anyway."),
        json("dataset_kwargs", "Settings of the preparation: {\"skip_prepare_dataset\": false}."),
        words("datasets", "", "A mixture of datasets of a configuration file; refused with what to give."),
        number("test_split_size", "", "Share of a mixture to evaluate on; refused with what to give."),
        flag("ignore_bias_buffers", "no", "Leave buffers out of PyTorch's DDP.")
            .explained("It concerns PyTorch's DDP, which is not used."),
    };
    static const std::vector<Argument> rows = [] {
        std::vector<Argument> all = changed_rows(
            data_arguments(),
            {path("dataset_name", "",
                  "File, local folder or Hub name of a dataset of conversations (messages), prompts with "
                  "completions, or text. Several, separated by commas, are mixed.")
                 .of_command(),
             path("train_file", "", "File of training examples.").of_command(),
             path("validation_file", "", "File of examples to evaluate on.").of_command(),
             integer("validation_split_percentage", "0",
                     "Share of the training rows to evaluate on when there is no data for it; 0: that is an "
                     "error.")
                 .of_command()
                 .at_least(0)
                 .at_most(100)},
            {"text_column", "packing", "pad_token", "block_size", "preprocessing_num_workers"});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }();
    return rows;
}

std::span<const Argument> sft_optimization_arguments() {
    using namespace table;
    static const std::vector<Argument> rows = changed_rows(
        optimization_arguments(),
        {number("learning_rate", "2e-05", "Highest learning rate; for adapters (LoRA) often ten times this.")
             .at_least(0)});
    return rows;
}

std::span<const Argument> sft_precision_arguments() {
    using namespace table;
    static const std::vector<Argument> rows = changed_rows(
        precision_arguments(),
        {flag("bf16", "yes",
              "Compute in bfloat16, with float32 weights as they are; with --fp16 unset means no."),
         flag("gradient_checkpointing", "yes",
              "Keep only the inputs of the blocks, as --recompute full; a --recompute replaces it.")});
    return rows;
}

std::span<const Argument> sft_logging_arguments() {
    using namespace table;
    static const std::vector<Argument> rows = changed_rows(
        logging_arguments(),
        {number("logging_steps", "10", "Updates between records; below 1 a share of all updates.")
             .at_least(0)});
    return rows;
}

std::span<const Argument> sft_explained_arguments() {
    using namespace table;
    static constexpr std::array more{
        flag("activation_offloading", "no", "Move activations to host memory.")
            .explained("Activations stay on the device; --recompute decides which of them are kept."),
    };
    static const std::vector<Argument> rows = [] {
        std::vector<Argument> all = changed_rows(explained_arguments(), {});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }();
    return rows;
}

constexpr std::array sft_aliases{
    ArgumentAlias{"torch_dtype", "dtype"},
    ArgumentAlias{"evaluation_strategy", "eval_strategy"},
    ArgumentAlias{"no_cuda", "use_cpu"},
    ArgumentAlias{"per_gpu_train_batch_size", "per_device_train_batch_size"},
    ArgumentAlias{"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    ArgumentAlias{"push_to_hub_token", "hub_token"},
    ArgumentAlias{"push_to_hub_model_id", "hub_model_id"},
    ArgumentAlias{"lr", "learning_rate"},
    ArgumentAlias{"activation_checkpointing", "gradient_checkpointing"},
    ArgumentAlias{"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"},
    ArgumentAlias{"dataset_config", "dataset_config_name"},
    ArgumentAlias{"dataset_streaming", "streaming"},
    ArgumentAlias{"text_column", "dataset_text_field"},
    ArgumentAlias{"max_seq_length", "max_length"},
    ArgumentAlias{"preprocessing_num_workers", "dataset_num_proc"},
};

}  // namespace

std::span<const Argument> sft_arguments() {
    using namespace table;
    static constexpr std::array rows{
        path("chat_template_path", "",
             "File of the chat template, or folder of a tokenizer that has one; unset: the tokenizer's."),
        integer("max_length", "1024", "Longest row, in tokens; what is longer is cut. 0: any length.")
            .at_least(0)
            .at_most(most_of_a_batch),
        choice("truncation_mode", "keep_start|keep_end", "keep_start",
               "Which end of a row that is too long is kept."),
        flag("assistant_only_loss", "no",
             "Learn only what the assistant says; the template must mark it with {% generation %}."),
        maybe("completion_only_loss",
              "Learn only completions; unset: yes for rows of prompt and completion."),
        text("eos_token", "", "Text of the token that ends an answer; unset: the tokenizer's EOS."),
        maybe("eval_packing", "Pack the rows of the evaluation; unset: as those of training."),
        flag("padding_free", "no",
             "Flatten the examples of a batch into one row without padding; the first token of each is then "
             "not counted, as in TRL. --packing bfd and bfd_split are so anyway."),
        text("pad_to_multiple_of", "auto",
             "Rows are padded to a multiple of this many tokens; auto: no more than needed."),
        choice("loss_type", "nll|chunked_nll|dft", "nll",
               "nll: cross entropy, computed in chunks without all logits at once; chunked_nll is the same. "
               "dft is not available."),
        number("router_aux_loss_coef", "",
               "Mixtral: weight of the loss that balances its experts; unset: the config's; 0: none.")
            .at_least(0),
        flag("allow_special_tokens", "no",
             "Messages that spell a special token contain that token, as in TRL; no: they stay text."),
        text("dataset_train_split", "train", "Split of the dataset to train on.").of_command(),
        text("dataset_test_split", "test", "Split of the dataset to evaluate on.").of_command(),
    };
    return rows;
}

std::span<const Argument> run_clm_sft_arguments() {
    using namespace table;
    static constexpr std::array own{
        flag("sft", "no",
             "The rows are conversations, prompts with completions or texts, each an example, as for `drover "
             "sft`: --text_column names plain text, --packing is none, bfd, bfd_split or wrapped, and "
             "--block_size is --max_length. The other flags of this group need it."),
    };
    static const std::vector<Argument> rows = [] {
        std::vector<Argument> all(own.begin(), own.end());
        const auto shared = sft_arguments();
        all.insert(all.end(), shared.begin(), shared.end());
        return all;
    }();
    return rows;
}

/// The groups of run_clm, some with other arguments.
static std::vector<ArgumentGroup> sft_groups() {
    const auto shared = run_clm_table().groups();
    std::vector<ArgumentGroup> groups(shared.begin(), shared.end());
    const auto group = [&](std::string_view name) -> ArgumentGroup& {
        const auto found = std::ranges::find(groups, name, &ArgumentGroup::name);
        require(found != groups.end(), "a group of arguments that run_clm does not have");
        return *found;
    };
    group("run").arguments = sft_run_arguments();
    group("model").arguments = sft_model_arguments();
    group("data") = {"data", "Data", "Where the examples come from, and how they share rows.",
                     sft_data_arguments()};
    group("finetuning") = {"finetuning", "Supervised fine-tuning",
                           "How examples become tokens, and what is learned.", sft_arguments()};
    group("optimization").arguments = sft_optimization_arguments();
    group("precision").arguments = sft_precision_arguments();
    group("logging").arguments = sft_logging_arguments();
    group("explained").arguments = sft_explained_arguments();
    return groups;
}

const ArgumentTable& sft_table() {
    static const std::vector<ArgumentGroup> groups = sft_groups();
    static const ArgumentTable table("sft", groups, sft_aliases);
    return table;
}

}  // namespace drover
