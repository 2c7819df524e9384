#pragma once

#include <optional>

#include "args/arguments.h"
#include "run/settings/run_settings.h"

/// The flags of peft_arguments(), which the commands that train share.
namespace drover {

/// What --peft_lora and --adapter_name_or_path stand for, and lines for flags that have no effect.
void imply_adapters(Arguments& arguments);

/// UsageError when they contradict each other, or ask for what there is not.
void check_adapters(const Arguments& arguments);

/// Absent: all weights are trained.
std::optional<LoraSettings> adapter_settings(const Arguments& arguments);

}  // namespace drover
