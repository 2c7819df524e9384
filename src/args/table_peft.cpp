#include <array>

#include "args/argument_table.h"

namespace drover {

std::span<const Argument> peft_arguments() {
    using namespace table;
    constexpr std::string_view no_4_bit =
        "There are no 4-bit weights here: --load_in_4bit is refused, and this flag does nothing.";
    static constexpr std::array rows{
        flag("use_peft", "no",
             "Train low-rank adapters (LoRA) instead of the weights. Checkpoints and the output folder then "
             "hold adapters as PEFT saves them, and no weights of the model."),
        path("adapter_name_or_path", "",
             "Folder or Hub name of adapters that PEFT or an earlier run saved: training goes on from them. "
             "Implies --use_peft; their adapter_config.json says the rest.")
            .own_of_process(),
        integer("lora_r", "16", "Rank of the adapters.").at_least(1).at_most(65536),
        integer("lora_alpha", "32",
                "What adapters add is multiplied by this over the rank (with --use_rslora, over its root).")
            .at_least(1)
            .at_most(1e9),
        number("lora_dropout", "0.05", "Share of an adapter's inputs that are dropped in training.")
            .at_least(0)
            .at_most(1),
        words("lora_target_modules", "",
              "Modules that get adapters, by the ends of their names; all-linear: every linear layer but the "
              "output head; any other single word: a regular expression for the whole name. Unset: q_proj "
              "and v_proj, as PEFT has it for these models."),
        words("lora_target_parameters", "",
              "Weights that get adapters, by the ends of their names, for PEFT's target_parameters."),
        words("lora_modules_to_save", "",
              "Modules that are trained whole and saved with the adapters, such as embed_tokens or lm_head."),
        text("lora_task_type", "CAUSAL_LM", "Task in adapter_config.json; only CAUSAL_LM is trained here."),
        flag("use_rslora", "no", "Multiply by alpha over the root of the rank (rank-stabilized LoRA)."),
        flag("use_dora", "no", "Also train the length of every row of the adapted weights (DoRA)."),
        flag("peft_lora", "no",
             "Short for --use_peft --lora_r 8 --lora_alpha 32 --lora_dropout 0; each can be given."),
        flag("load_in_8bit", "no", "Keep the model's weights in 8 bits; not available, so yes is refused."),
        flag("load_in_4bit", "no", "Keep the model's weights in 4 bits; not available, so yes is refused."),
        choice("bnb_4bit_quant_type", "fp4|nf4", "nf4", "Kind of 4-bit numbers.").explained(no_4_bit),
        flag("use_bnb_nested_quant", "no", "Quantise the scales of 4-bit weights, too.").explained(no_4_bit),
        text("bnb_4bit_quant_storage", "", "Number format that 4-bit weights are stored in.")
            .explained(no_4_bit),
    };
    return rows;
}

}  // namespace drover
