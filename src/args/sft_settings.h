#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "args/parse_arguments.h"
#include "run/settings/run_settings.h"

/// Supervised fine-tuning: `drover sft`, and `drover run_clm --sft`.
namespace drover {

/// Reads the words after `drover sft`, as parse_run_arguments() does for run_clm.
RunArguments parse_sft_arguments(std::span<const std::string> words, const ParseOptions& options = {});

/// Whether the rows are examples for supervised fine-tuning.
bool is_sft(const Arguments& arguments);

/// Settings of `drover sft` that follow from others, as in TRL.
void imply_sft(Arguments& arguments);

/// UsageError for settings that contradict each other, are not available, or need --sft.
void check_sft(const Arguments& arguments);

/// Absent if the rows are not examples.
std::optional<SftSettings> sft_settings(const Arguments& arguments);

/// How rows are packed: "none", or the name of a packing.
std::string chosen_packing(const Arguments& arguments);

/// The arguments of `drover sft` that a resumed run compares with its checkpoint.
std::span<const std::string_view> sft_arguments_compared_on_resume();

}  // namespace drover
