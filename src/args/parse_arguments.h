#pragma once

#include <optional>
#include <span>
#include <string>

#include "args/deepspeed_settings.h"
#include "args/fsdp_settings.h"
#include "args/read_arguments.h"

namespace drover {

/// A parsed and checked command line of `drover run_clm`.
struct RunArguments {
    Arguments arguments;
    std::optional<FsdpSettings> fsdp{};
    std::optional<DeepSpeedSettings> deepspeed{};
    /// --per_device_train_batch_size is the micro-batch over all devices.
    bool batch_is_global = false;
    /// The global batch is one batch, as under SPMD, rather than split into batches of the replicas
    /// (Accelerate's split_batches).
    bool batch_is_spmd = false;
    /// Processes that see different batches, according to the arguments; a --deepspeed configuration is
    /// compared with it.
    std::int64_t replicas = 1;
};

/// Reads the words after `drover run_clm`, of which the first may name a file of arguments. Derives settings
/// from others, checks combinations, and collects explanations for the caller to print. UsageError if
/// something is wrong.
RunArguments parse_run_arguments(std::span<const std::string> words, const ParseOptions& options = {});

/// The steps after reading: environment, derived settings, checks.
RunArguments settle_run_arguments(Arguments arguments, const ParseOptions& options);

/// Derives settings from others, as transformers does after parsing: evaluation steps, the metric of the best
/// model, recompute, device, optimizer, and the meaning of the older names.
void apply_implications(Arguments& arguments);

/// Explains flags that have no effect beside others that are given.
void explain_unused(Arguments& arguments);

/// UsageError for the first invalid combination.
void check_combinations(const Arguments& arguments);

}  // namespace drover
