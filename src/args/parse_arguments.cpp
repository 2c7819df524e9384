#include "args/parse_arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "args/object_reader.h"
#include "args/parse_words.h"
#include "core/error.h"

namespace drover {
namespace {

/// compute_dtype of xla_fsdp_settings: weights are stored in fp32 and computed with in another format, as
/// with --bf16 and --fp16.
void apply_compute_dtype(Arguments& arguments, const std::string& dtype) {
    if (dtype.empty()) return;
    struct Format {
        const char *flag, *dtype;
    };
    for (const Format& format : {Format{"bf16", "bfloat16"}, Format{"fp16", "float16"}}) {
        const bool computes = dtype == format.dtype;
        if (arguments.given(format.flag) && arguments.flag(format.flag) != computes)
            throw UsageError(fmt::format("--fsdp_config: compute_dtype is {}, but --{} is {}.", dtype,
                                         format.flag, computes ? "no" : "yes"),
                             "Make them agree, or leave one of them out.");
        if (computes) arguments.imply(format.flag, true, "compute_dtype of --fsdp_config");
    }
    if (const auto weights = arguments.optional_text("dtype");
        weights && *weights != "auto" && *weights != "float32" && *weights != dtype)
        throw UsageError(
            fmt::format(
                "--fsdp_config: compute_dtype is {}, but weights of --dtype {} are computed with as they "
                "are.",
                dtype, *weights),
            "Make them agree, or leave one of them out.");
}

void apply_fsdp(RunArguments& run) {
    run.fsdp = read_fsdp_settings(run.arguments);
    if (!run.fsdp) {
        if (run.arguments.has("fsdp_config"))
            run.arguments.explain("--fsdp_config: it is read and checked, but has no effect without --fsdp.");
        return;
    }
    if (run.fsdp->activation_checkpointing) {
        if (run.arguments.flag("gradient_checkpointing") && run.arguments.given("gradient_checkpointing"))
            throw UsageError(
                "--gradient_checkpointing and the activation_checkpointing of --fsdp_config ask for the same "
                "thing twice.",
                "Keep one of them.");
        run.arguments.imply("recompute", "full", "--fsdp_config");
    }
    apply_compute_dtype(run.arguments, run.fsdp->compute_dtype);
    for (const std::string& line : run.fsdp->explanations) run.arguments.explain(line);
}

void apply_deepspeed(RunArguments& run) {
    const Json& config = run.arguments.json("deepspeed");
    if (config.is_null()) return;
    if (run.fsdp)
        throw UsageError("--deepspeed and --fsdp both say how to shard the model.", "Keep one of them.");
    run.deepspeed =
        read_deepspeed_settings(config, "--deepspeed", run.arguments, {.world_size = run.replicas});
    const ArgumentSource source{.kind = ArgumentSource::Kind::deepspeed};
    if (!run.deepspeed->optimizer.empty()) run.arguments.set("optim", run.deepspeed->optimizer, source);
    if (!run.deepspeed->schedule.empty()) {
        if (run.arguments.given("lr_scheduler_type") &&
            run.arguments.text("lr_scheduler_type") != run.deepspeed->schedule)
            run.arguments.explain(
                fmt::format("--lr_scheduler_type: the scheduler block of --deepspeed takes precedence, so "
                            "the schedule is {}.",
                            run.deepspeed->schedule));
        run.arguments.set("lr_scheduler_type", run.deepspeed->schedule, source);
    }
    if (run.deepspeed->recompute && !run.arguments.given("recompute"))
        run.arguments.set("recompute", "full", source);
    // Settings that require bf16 weights alone take precedence.
    const bool bf16_alone = run.arguments.flag("stochastic_rounding") ||
                            !run.arguments.optional_flag("use_gpu_compatible_precision").value_or(true);
    if (run.deepspeed->bf16_has_master && !run.arguments.given("master_weights") && !bf16_alone)
        run.arguments.set("master_weights", true, source);
    for (const std::string& line : run.deepspeed->explanations) run.arguments.explain(line);
}

/// With --fsdp, --spmd_dcn_parallelism only gives the number of copies.
bool asks_for_spmd(const RunArguments& run) {
    const Arguments& arguments = run.arguments;
    for (const char* name : {"spmd_fsdp_sharding", "spmd_grad_chkpt", "spmd_defer_init"})
        if (arguments.flag(name)) return true;
    return arguments.integer("spmd_2d_sharding") > 0 ||
           (arguments.integer("spmd_dcn_parallelism") > 1 && !run.fsdp);
}

/// Whether the batch given on the command line is global.
bool apply_accelerator_config(Arguments& arguments) {
    const bool split_by_flag = arguments.optional_flag("split_batches").value_or(false);
    const Json& config = arguments.json("accelerator_config");
    if (config.is_null()) return split_by_flag;
    ObjectReader reader(config, "--accelerator_config");
    const std::vector<std::string> no_effect{"dispatch_batches", "even_batches", "use_seedable_sampler",
                                             "non_blocking", "use_configured_state"};
    const bool split = reader.flag("split_batches", split_by_flag);
    for (const std::string& key : no_effect) reader.flag(key, false);
    ObjectReader accumulation = reader.object("gradient_accumulation_kwargs");
    if (accumulation.has("num_steps"))
        accumulation.fail("num_steps", "is given", "Use --gradient_accumulation_steps.");
    reader.check_all_known();
    if (const auto given = reader.without_effect(no_effect); !given.empty())
        arguments.explain(fmt::format(
            "--accelerator_config: {} tune Accelerate's loaders, which are not used; the order of "
            "samples is that of its seedable sampler.",
            fmt::join(given, ", ")));
    return split;
}

}  // namespace

RunArguments settle_run_arguments(Arguments arguments, const ParseOptions& options) {
    RunArguments run{.arguments = std::move(arguments)};
    explain_given(run.arguments);
    apply_environment(run.arguments, options.environment, options.file);
    apply_implications(run.arguments);
    explain_lone_process(run.arguments, options);
    run.replicas =
        std::max<std::int64_t>(1, options.world_size / run.arguments.integer("tensor_parallel_size") /
                                      run.arguments.integer("pipeline_parallel_size"));
    apply_fsdp(run);
    apply_deepspeed(run);
    const bool splits_batches = apply_accelerator_config(run.arguments);
    check_combinations(run.arguments);
    run.batch_is_spmd = is_on(options.environment, "XLA_USE_SPMD") || asks_for_spmd(run) ||
                        (run.fsdp && run.fsdp->xla_fsdp_v2);
    run.batch_is_global = run.batch_is_spmd || splits_batches;
    return run;
}

RunArguments parse_run_arguments(std::span<const std::string> words, const ParseOptions& options) {
    return settle_run_arguments(read_arguments(run_clm_table(), words, options), options);
}

}  // namespace drover
