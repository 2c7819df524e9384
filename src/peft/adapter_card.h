#pragma once

#include <string>

namespace drover {

struct PeftConfig;

/// The head of README.md beside an adapter, between lines of "---", as PEFT has it.
std::string adapter_card_head(const PeftConfig& config);

/// A model card with that head and no more than a title and PEFT's version.
std::string adapter_card(const PeftConfig& config);

}  // namespace drover
