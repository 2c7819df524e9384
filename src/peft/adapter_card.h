#pragma once

#include <string>

namespace drover {

struct PeftConfig;

/// README.md beside an adapter: the head for the Hub as PEFT has it, a title and PEFT's version.
std::string adapter_card(const PeftConfig& config);

}  // namespace drover
