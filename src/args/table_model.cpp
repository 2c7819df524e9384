#include <array>

#include "args/argument_table.h"

namespace drover {

std::span<const Argument> model_arguments() {
    using namespace table;
    static constexpr std::array rows{
        path("model_name_or_path", "", "Folder or Hub name of a model whose weights training starts from.")
            .of_command(),
        text("model_type", "",
             "Model class (llama, mistral, mixtral, qwen2 or qwen3) whose default config is used when "
             "neither --config_name nor "
             "--model_name_or_path is given.")
            .of_command(),
        text("config_overrides", "",
             "Changes to the default config, \"key=value,key=value\"; not with --config_name or "
             "--model_name_or_path.")
            .of_command(),
        path("config_name", "",
             "Folder, JSON file or Hub name of the model's config; alone, the model starts from random "
             "weights.")
            .of_command()
            .own_of_process(),
        path("tokenizer_name", "", "Folder or Hub name of the tokenizer, when it is not the model's own.")
            .of_command()
            .own_of_process(),
        path("cache_dir", "",
             "Folder for models, tokenizers and datasets of the Hub, instead of its usual cache.")
            .own_of_process(),
        flag("use_fast_tokenizer", "yes", "Which Python tokenizer class to use.")
            .explained("There is one tokenizer here: native code that gives the tokens of the fast class."),
        text("model_revision", "main", "Branch, tag or commit of a model of the Hub."),
        text("token", "",
             "Access token for gated and private models and datasets of the Hub; unset: that of HF_TOKEN or "
             "of `drover login`.")
            .of_command()
            .own_of_process(),
        maybe("use_auth_token", "Use the token that was stored by a login.")
            .explained("The token of HF_TOKEN or of a login is used in any case; --token names another."),
        flag("trust_remote_code", "no", "Allow Python code that comes with a model.")
            .explained("Code that comes with a model is never run; no supported model needs any."),
        choice("dtype", "auto|bfloat16|float16|float32", "",
               "Number format of the weights, also of a model that starts from random ones; auto, or unset: "
               "what config.json says, else float32. --hf_compat changes what unset means."),
        choice("hf_compat", "5|4.57|4.43", "5",
               "Release of transformers whose numbers a run has, where releases differ. 4.57: loaded weights "
               "are float32 unless --dtype says otherwise, the loss is divided as --loss_denominator hf457 "
               "says, Mixtral's experts are drawn as single layers. 4.43: new weights are float32 too, the "
               "loss is the mean of the micro-batches' means, and Mixtral's norms have weight decay."),
        flag("low_cpu_mem_usage", "no", "Build the model without a second copy in memory.")
            .explained("There is never a second copy of the model in memory."),
        choice("attn_implementation", "eager|sdpa|flash_attention_2|flash_attention_3|flex_attention", "",
               "Which attention code to use.")
            .explained("Every choice runs the same tiled attention, which never forms the matrix of scores."),
        flag("flash_attention", "no", "Use the fused attention kernel.")
            .explained("Attention is always tiled and fused, with or without the flag."),
        flag("gmm", "no", "Mixtral: grouped products over the sorted tokens of all experts (the default)."),
        flag("gmm_stack", "no",
             "Mixtral: the same products, with the experts' weights copied together for each of them; for "
             "comparison: equal numbers, more memory and time."),
        flag("static", "no", "Mixtral: every expert sees every token; slow, for comparison."),
        choice("init", "hf|counter", "hf",
               "How new weights are drawn: hf gives those of transformers for the seed; counter draws every "
               "element by its "
               "place, which is several times faster."),
        flag("spmd_defer_init", "no", "Make each weight only where it is kept.")
            .explained("This is always so: no process ever creates a weight that it does not keep, and the "
                       "values are those of the model's own init."),
        integer("num_layer", "-1",
                "Number of layers, instead of the config's; -1: the config's. Loaded weights give the first "
                "layers, and missing layers are drawn.")
            .of_command()
            .at_least(-1),
        integer("hidden_size", "-1",
                "Width of the model, instead of the config's; -1: the config's. head_dim follows, "
                "intermediate_size stays. It must be the width of loaded weights.")
            .of_command()
            .at_least(-1),
    };
    return rows;
}

std::span<const Argument> data_arguments() {
    using namespace table;
    static constexpr std::array rows{
        path("dataset_name", "",
             "Local folder or Hub name of a dataset, for example wikitext; a folder may hold input_ids. "
             "Several, separated by commas, are mixed.")
            .of_command(),
        text("dataset_config_name", "",
             "Configuration of the dataset, for example wikitext-2-raw-v1; of several datasets one for all, "
             "or one for each, separated by commas.")
            .of_command(),
        text("dataset_weights", "",
             "Shares of the training examples (blocks) that come from the datasets of --dataset_name: "
             "positive numbers such as 3,1. Unset: an epoch has every block of every dataset once.")
            .of_command(),
        path("train_file", "", "File of training text, a token file, or a folder with input_ids.")
            .of_command(),
        path("validation_file", "", "File of evaluation text, a token file, or a folder with input_ids.")
            .of_command(),
        text("text_column", "",
             "Column that holds the text; unset: text, else the first column, but prompts with answers and "
             "chats are refused. Of several datasets one for all, or one for each, separated by commas.")
            .of_command(),
        choice(
            "packing", "hf|lossless|none|bfd|bfd_split|wrapped", "hf",
            "hf: blocks as run_clm.py cuts them, which drops the tail of every 1000 rows; lossless: the "
            "same without dropping; none: one row per sequence, padded, cut at the block size. With --sft: "
            "none (if unset), or TRL's bfd, bfd_split and wrapped.")
            .of_command(),
        text("pad_token", "", "With --packing none: eos, unk, or the token itself; unset: the tokenizer's.")
            .of_command(),
        integer("max_train_samples", "",
                "Use only the first blocks for training; of several datasets each gives its share of them.")
            .of_command()
            .at_least(1),
        integer("max_eval_samples", "",
                "Use only the first blocks for evaluation; of several datasets each gives its share of them.")
            .of_command()
            .at_least(1),
        flag("streaming", "no",
             "Read, tokenize and pack the text while it is trained on, in its order and without the token "
             "cache; needs --max_steps.")
            .of_command(),
        integer(
            "block_size", "",
            "Tokens per sequence, at least 2; unset: what tokenizer and model allow, at most 1024 where the "
            "tokenizer has no limit (with --packing none, the model's positions).")
            .of_command()
            .at_least(1)
            .at_most(most_of_a_batch),
        flag("overwrite_cache", "no", "Tokenize again even when the token cache has the blocks.")
            .of_command(),
        integer("validation_split_percentage", "5",
                "Share of the training rows used for evaluation when there is no validation data.")
            .of_command()
            .at_least(0)
            .at_most(100),
        integer("preprocessing_num_workers", "",
                "Number of shards that the rows are cut into before packing, like the original's worker "
                "processes; it decides which tails are dropped.")
            .of_command()
            .at_least(1),
        flag("keep_linebreaks", "yes", "Keep the line break at the end of each line of a text file.")
            .of_command(),
    };
    return rows;
}

}  // namespace drover
