#include "peft/adapter_card.h"

#include <fmt/format.h>

#include "peft/peft_config.h"

namespace drover {
namespace {

/// Between lines of "---".
std::string adapter_card_head(const PeftConfig& config) {
    const std::string& base = config.base_model;
    return fmt::format(
        "---\n{}library_name: peft\npipeline_tag: text-generation\ntags:\n{}- lora\n- transformers\n---\n",
        base.empty() ? "" : fmt::format("base_model: {}\n", base),
        base.empty() ? "" : fmt::format("- base_model:adapter:{}\n", base));
}

}  // namespace

std::string adapter_card(const PeftConfig& config) {
    return fmt::format(
        "{}\n# Adapter of {}\n\nLow-rank adapters (LoRA) of rank {}, to be loaded with PEFT.\n\n"
        "### Framework versions\n\n- PEFT {}\n",
        adapter_card_head(config), config.base_model.empty() ? "a model" : config.base_model, config.rank,
        peft_version);
}

}  // namespace drover
