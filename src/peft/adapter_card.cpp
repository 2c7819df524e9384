#include "peft/adapter_card.h"

#include <fmt/format.h>

#include "peft/peft_config.h"

namespace drover {

std::string adapter_card_head(const PeftConfig& config) {
    return fmt::format(
        "---\n"
        "base_model: {0}\n"
        "library_name: peft\n"
        "pipeline_tag: text-generation\n"
        "tags:\n"
        "- base_model:adapter:{0}\n"
        "- lora\n"
        "- transformers\n"
        "---\n",
        config.base_model);
}

std::string adapter_card(const PeftConfig& config) {
    return fmt::format(
        "{}\n# Adapter of {}\n\nLow-rank adapters (LoRA) of rank {}, to be loaded with PEFT.\n\n"
        "### Framework versions\n\n- PEFT {}\n",
        adapter_card_head(config), config.base_model, config.rank, peft_version);
}

}  // namespace drover
