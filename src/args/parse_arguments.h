#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "args/arguments.h"
#include "args/deepspeed_settings.h"
#include "args/environment_table.h"
#include "args/fsdp_settings.h"

namespace drover {

/// A command line of `drover run_clm`, read and checked.
struct RunArguments {
    Arguments arguments;
    std::optional<FsdpSettings> fsdp{};
    std::optional<DeepSpeedSettings> deepspeed{};
    /// --per_device_train_batch_size is the micro-batch of all devices together.
    bool batch_is_global = false;
    /// It is one batch, as under SPMD, not cut into batches of the replicas (Accelerate's split_batches).
    bool batch_is_spmd = false;
    /// Processes that see different batches, according to the arguments: a --deepspeed configuration is
    /// compared with it.
    std::int64_t replicas = 1;
    /// --help or --help_markdown is set; nothing else was read or checked.
    bool asks_for_help = false;
};

struct ParseOptions {
    Environment environment{};
    /// Its words stand before those of the command line; nothing happens when there is no such file.
    std::filesystem::path args_file{};
    std::int64_t world_size = 1;  ///< processes that were started together
};

/// Reads the words after `drover run_clm`; a single word that ends in .json names a file with all arguments.
/// What follows from other settings is filled in, combinations are checked, and explanations are collected
/// for the caller to print. UsageError when something is wrong.
RunArguments parse_run_arguments(std::span<const std::string> words, const ParseOptions& options = {});

/// The steps after reading: environment, what follows from other settings, checks.
RunArguments settle_run_arguments(Arguments arguments, const ParseOptions& options);

/// Fills in what follows from other settings, as transformers does after parsing: evaluation steps, the
/// metric of the best model, recompute, device, optimizer, and what the older names stand for.
void apply_implications(Arguments& arguments);

/// UsageError for the first combination that is not possible.
void check_combinations(const Arguments& arguments);

}  // namespace drover
