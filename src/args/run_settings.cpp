#include "args/run_settings.h"

#include <fmt/format.h>

#include <array>

#include "args/adapter_arguments.h"
#include "args/argument_value.h"
#include "args/common_settings.h"
#include "args/dataset_list.h"
#include "args/pipeline_arguments.h"
#include "args/sft_settings.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

// -------------------------------------------------------------------------------------------------------
// model and data

ModelSettings model_settings(const Arguments& arguments) {
    return {.model_name_or_path = text_or_empty(arguments, "model_name_or_path"),
            .config_name = text_or_empty(arguments, "config_name"),
            .model_type = text_or_empty(arguments, "model_type"),
            .tokenizer_name = text_or_empty(arguments, "tokenizer_name"),
            .config_overrides = text_or_empty(arguments, "config_overrides"),
            .cache_dir = text_or_empty(arguments, "cache_dir"),
            .revision = arguments.text("model_revision"),
            .token = text_or_empty(arguments, "token"),
            .num_layers = arguments.integer("num_layer"),
            .hidden_size = arguments.integer("hidden_size"),
            .saves_use_cache = arguments.flag("use_cache"),
            .balances_experts = is_sft(arguments),
            .balance_coefficient = arguments.optional_number("router_aux_loss_coef")};
}

SampleOrder sample_order(const std::string& text) {
    return text == "group_by_length" ? SampleOrder::by_length
           : text == "sequential"    ? SampleOrder::sequential
                                     : SampleOrder::shuffled;
}

/// What datasets of text and of examples have in common.
DataSettings source_settings(const Arguments& arguments) {
    const std::vector<NamedDataset> datasets = named_datasets(arguments);
    return {.datasets = datasets,
            .dataset_weights = dataset_weights(arguments, datasets.size()),
            .train_file = text_or_empty(arguments, "train_file"),
            .validation_file = text_or_empty(arguments, "validation_file"),
            .max_train_samples = arguments.optional_integer("max_train_samples"),
            .max_eval_samples = arguments.optional_integer("max_eval_samples"),
            .streaming = arguments.flag("streaming"),
            .overwrite_cache = arguments.flag("overwrite_cache"),
            .validation_split_percentage = static_cast<int>(arguments.integer("validation_split_percentage")),
            .keep_linebreaks = arguments.flag("keep_linebreaks"),
            .order = sample_order(arguments.text("train_sampling_strategy"))};
}

DataSettings data_settings(const Arguments& arguments) {
    DataSettings settings = source_settings(arguments);
    settings.sft = sft_settings(arguments);
    if (settings.sft) {
        std::error_code ignored;
        // One file as a dataset: a --validation_file may stand beside it.
        if (settings.datasets.size() == 1 &&
            std::filesystem::is_regular_file(settings.datasets[0].name, ignored)) {
            settings.train_file = settings.datasets[0].name;
            settings.datasets.clear();
        }
        settings.train_split = arguments.text("dataset_train_split");
        settings.validation_split = arguments.text("dataset_test_split");
        return settings;
    }
    settings.text_column = text_or_empty(arguments, "text_column");
    settings.packing = packing_from_name(arguments.text("packing"), "--packing");
    settings.packing_is_given = arguments.given("packing");
    settings.pad_token = text_or_empty(arguments, "pad_token");
    settings.block_size = arguments.optional_integer("block_size");
    settings.preprocessing_num_workers = arguments.optional_integer("preprocessing_num_workers");
    return settings;
}

// -------------------------------------------------------------------------------------------------------
// loop

IntervalStrategy strategy(const Arguments& arguments, std::string_view name) {
    const std::string& text = arguments.text(name);
    if (text == "no") return IntervalStrategy::no;
    if (text == "steps") return IntervalStrategy::steps;
    if (text == "epoch") return IntervalStrategy::epoch;
    return IntervalStrategy::best;
}

CountTokens counted_tokens(const std::string& text) {
    return text == "all"           ? CountTokens::all
           : text == "non_padding" ? CountTokens::non_padding
                                   : CountTokens::no;
}

TrainerSettings loop_settings(const Arguments& arguments) {
    TrainerSettings settings;
    settings.output_dir = arguments.text("output_dir");
    settings.num_train_epochs = arguments.number("num_train_epochs");
    settings.max_steps = arguments.integer("max_steps");
    settings.per_device_train_batch_size = arguments.integer("per_device_train_batch_size");
    settings.per_device_eval_batch_size = arguments.integer("per_device_eval_batch_size");
    settings.gradient_accumulation_steps = arguments.integer("gradient_accumulation_steps");
    settings.learning_rate = arguments.number("learning_rate");
    settings.lr_scheduler_type = arguments.text("lr_scheduler_type");
    settings.lr_scheduler_kwargs = arguments.json("lr_scheduler_kwargs");
    settings.warmup_steps = arguments.number("warmup_steps");
    settings.warmup_ratio = arguments.number("warmup_ratio");
    settings.logging_strategy = strategy(arguments, "logging_strategy");
    settings.logging_steps = arguments.optional_number("logging_steps");
    settings.logging_first_step = arguments.flag("logging_first_step");
    settings.logging_nan_inf_filter = arguments.flag("logging_nan_inf_filter");
    settings.eval_strategy = strategy(arguments, "eval_strategy");
    settings.eval_steps = arguments.optional_number("eval_steps");
    settings.eval_delay = arguments.number("eval_delay");
    settings.eval_on_start = arguments.flag("eval_on_start");
    settings.save_strategy = strategy(arguments, "save_strategy");
    settings.save_steps = arguments.optional_number("save_steps");
    settings.save_total_limit = arguments.optional_integer("save_total_limit").value_or(0);
    settings.load_best_model_at_end = arguments.flag("load_best_model_at_end");
    settings.metric_for_best_model = text_or_empty(arguments, "metric_for_best_model");
    settings.greater_is_better = arguments.optional_flag("greater_is_better");
    settings.early_stopping_patience = arguments.optional_integer("early_stopping_patience");
    settings.early_stopping_threshold = arguments.number("early_stopping_threshold");
    settings.dataloader_drop_last = arguments.flag("dataloader_drop_last");
    settings.prediction_loss_only = arguments.flag("prediction_loss_only");
    settings.ignore_data_skip = arguments.flag("ignore_data_skip");
    settings.include_tokens_per_second = arguments.flag("include_tokens_per_second");
    settings.include_num_input_tokens_seen = counted_tokens(arguments.text("include_num_input_tokens_seen"));
    settings.sft_records = is_sft(arguments);
    settings.seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    if (const auto seed = arguments.optional_integer("data_seed"))
        settings.data_seed = static_cast<std::uint64_t>(*seed);
    settings.finish();
    return settings;
}

// -------------------------------------------------------------------------------------------------------
// step, optimizer and precision

/// The number that --optim_args sets for an optimizer.
double optimizer_number(std::string_view key, const std::string& text) {
    std::size_t used = 0;
    double number = 0;
    try {
        number = std::stod(text, &used);
    } catch (const std::exception&) {
    }
    if (used != text.size())
        throw UsageError(fmt::format("--optim_args: {} is \"{}\", which is not a number.", key, text),
                         "Write it as key=number.");
    return number;
}

OptimizerSettings optimizer_settings(const Arguments& arguments) {
    OptimizerSettings settings =
        OptimizerSettings::named(arguments.text("optim"), arguments.number("weight_decay"));
    settings.adamw.beta1 = arguments.number("adam_beta1");
    settings.adamw.beta2 = arguments.number("adam_beta2");
    settings.adamw.eps = arguments.number("adam_epsilon");
    settings.rounding_seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    for (const auto& [key, text] : key_values(text_or_empty(arguments, "optim_args"), "--optim_args")) {
        const double number = optimizer_number(key, text);
        if (key == "momentum" && settings.name == "sgd")
            settings.sgd.momentum = number;
        else if (key == "alpha" && settings.name == "rmsprop")
            settings.rmsprop.alpha = number;
        else if (key == "eps" && settings.name == "rmsprop")
            settings.rmsprop.eps = number;
        else if (key == "eps" && settings.name == "adagrad")
            settings.adagrad.eps = number;
        else
            throw UsageError(fmt::format("--optim_args: {} has no setting \"{}\" here.", settings.name, key),
                             "sgd has momentum, rmsprop alpha and eps, adagrad eps.");
    }
    return settings;
}

HfCompat hf_compat(const Arguments& arguments) {
    const std::string& release = arguments.text("hf_compat");
    HfCompat compat = release == "4.43"   ? HfCompat::v4_43()
                      : release == "4.57" ? HfCompat::v4_57()
                                          : HfCompat();
    if (arguments.given("loss_denominator"))
        compat.loss_denominator = arguments.text("loss_denominator") == "hf457"
                                      ? HfCompat::LossDenominator::all_labels
                                      : HfCompat::LossDenominator::target_tokens;
    return compat;
}

MoeMode moe_mode(const Arguments& arguments) {
    return arguments.flag("static")      ? MoeMode::all_tokens
           : arguments.flag("gmm_stack") ? MoeMode::stacked
                                         : MoeMode::grouped;
}

StepSettings step_settings(const RunArguments& run) {
    const Arguments& arguments = run.arguments;
    StepSettings settings{
        .recompute = {.kind = recompute_from_name(arguments.text("recompute"), "--recompute"),
                      .blocks = arguments.optional_integer("recompute_blocks").value_or(INT64_MAX)},
        .fp8 = fp8_recipe_from_name(arguments.text("fp8"), "--fp8"),
        .moe_mode = moe_mode(arguments),
        .init = init_kind_from_name(arguments.text("init"), "--init"),
        .compat = hf_compat(arguments),
        .max_grad_norm = arguments.number("max_grad_norm"),
        .label_smoothing = arguments.number("label_smoothing_factor"),
        .neftune_alpha = arguments.optional_number("neftune_noise_alpha").value_or(0),
        .on_non_finite = on_non_finite(arguments)};
    if (run.deepspeed) settings.offload_optimizer = run.deepspeed->offload_optimizer;
    if (run.fsdp) {
        // The model's only buffers are the rotary angle tables.
        if (!run.fsdp->buffer_dtype.empty())
            settings.rope_rounding = floating_dtype_from_name(run.fsdp->buffer_dtype, "buffer_dtype");
        settings.gather_ahead_in_forward = run.fsdp->forward_prefetch;
        settings.gather_ahead_in_backward = run.fsdp->backward_prefetch;
        settings.offload_optimizer = run.fsdp->offload;
    }
    return settings;
}

PrecisionSettings precision_settings(const RunArguments& run) {
    const Arguments& arguments = run.arguments;
    PrecisionSettings settings{.bf16 = arguments.flag("bf16"),
                               .fp16 = arguments.flag("fp16"),
                               .master_weights = arguments.optional_flag("master_weights"),
                               .float32_residual = arguments.text("residual_dtype") == "float32",
                               .stochastic_rounding = arguments.flag("stochastic_rounding"),
                               .float32_gradient_sums = run.fsdp && run.fsdp->fp32_reduce_scatter};
    if (const auto dtype = arguments.optional_text("dtype")) {
        settings.weights_as_stored = *dtype == "auto";
        if (!settings.weights_as_stored) settings.weights = floating_dtype_from_name(*dtype, "--dtype");
    }
    if (const auto moments = arguments.optional_text("moments_dtype"))
        settings.moments = floating_dtype_from_name(*moments, "--moments_dtype");
    return settings;
}

// -------------------------------------------------------------------------------------------------------
// mesh

Sharding fsdp_sharding(const FsdpSettings& fsdp) {
    switch (fsdp.sharding) {
        case FsdpSettings::Sharding::no_shard:
            return Sharding::replicated;
        case FsdpSettings::Sharding::shard_grad_op:
        case FsdpSettings::Sharding::hybrid_shard_zero2:
            return Sharding::zero2;
        case FsdpSettings::Sharding::full_shard:
        case FsdpSettings::Sharding::hybrid_shard:
            // Keeping weights gathered between forward and backward is ZeRO-2.
            return fsdp.reshard_after_forward ? Sharding::zero3 : Sharding::zero2;
    }
    bug("unknown sharding");
}

bool is_hybrid(const FsdpSettings& fsdp) {
    return fsdp.sharding == FsdpSettings::Sharding::hybrid_shard ||
           fsdp.sharding == FsdpSettings::Sharding::hybrid_shard_zero2;
}

Sharding stage_sharding(int stage) {
    static constexpr std::array stages{Sharding::replicated, Sharding::zero1, Sharding::zero2,
                                       Sharding::zero3};
    return stages[static_cast<std::size_t>(stage)];
}

Sharding chosen_sharding(const RunArguments& run) {
    struct Choice {
        std::string asked_by;
        Sharding sharding;
    };
    std::vector<Choice> choices;
    if (run.fsdp) choices.push_back({"--fsdp", fsdp_sharding(*run.fsdp)});
    if (run.deepspeed) choices.push_back({"--deepspeed", stage_sharding(run.deepspeed->stage)});
    if (run.arguments.integer("spmd_2d_sharding") > 0)
        choices.push_back({"--spmd_2d_sharding", Sharding::zero3});
    if (run.arguments.flag("spmd_fsdp_sharding"))
        choices.push_back({"--spmd_fsdp_sharding", Sharding::zero3});
    if (run.arguments.flag("use_zero1_optimizer"))
        choices.push_back({"--use_zero1_optimizer", Sharding::zero1});
    if (choices.empty()) return Sharding::replicated;
    if (choices.size() > 1)
        throw UsageError(fmt::format("{} and {} both say how to shard the model.", choices[0].asked_by,
                                     choices[1].asked_by),
                         "Keep one of them.");
    return choices[0].sharding;
}

MeshSettings mesh_settings(const RunArguments& run) {
    const Arguments& arguments = run.arguments;
    check_context_parallel(arguments);
    const bool hybrid = run.fsdp && is_hybrid(*run.fsdp);
    const PipelineArguments pipeline = pipeline_arguments(arguments);
    MeshSettings settings{.sharding = chosen_sharding(run),
                          .shards_inside_machines = hybrid,
                          .tensor_parallel_size = arguments.integer("tensor_parallel_size"),
                          .pipeline_parallel_size = pipeline.ranks,
                          .pipeline = pipeline.settings,
                          .balances_pipeline = pipeline.balanced,
                          .two_dimensional = arguments.integer("spmd_2d_sharding") > 0,
                          .batch_is_global = run.batch_is_global,
                          .batch_is_spmd = run.batch_is_spmd};
    if (!hybrid || arguments.given("spmd_dcn_parallelism"))
        settings.copies = arguments.integer("spmd_dcn_parallelism");
    if (arguments.given("kv_replicator")) settings.key_value_copies = arguments.integer("kv_replicator");
    if (arguments.given("sequence_parallel"))
        settings.sequence_parallel = arguments.flag("sequence_parallel");
    if (run.fsdp) settings.wrapped_classes = run.fsdp->wrap_classes;
    return settings;
}

// -------------------------------------------------------------------------------------------------------
// checkpoints, logs, profile, device

ResumeSettings resume_settings(const Arguments& arguments) {
    using From = ResumeSettings::From;
    const std::string step = arguments.optional_text("loading_step").value_or("latest_if_exists");
    if (step == "-1") return {.from = From::nowhere, .asked_by = "--loading_step is -1"};
    if (step != "latest_if_exists")
        return {.from = From::step, .step = std::stoll(step), .asked_by = "--loading_step " + step};
    const auto asked = arguments.optional_text("resume_from_checkpoint");
    if (!asked) return {.from = arguments.flag("overwrite_output_dir") ? From::nowhere : From::newest_if_any};
    const std::string words = fmt::format("--resume_from_checkpoint is {}", *asked);
    const std::optional<bool> wanted =
        std::filesystem::exists(*asked) ? std::nullopt : boolean_from_word(*asked);
    if (!wanted) return {.from = From::folder, .folder = *asked, .asked_by = words};
    return {.from = *wanted ? From::newest : From::nowhere, .asked_by = words};
}

std::optional<PushSettings> push_settings(const Arguments& arguments) {
    using Strategy = PushSettings::Strategy;
    if (!arguments.flag("push_to_hub")) return std::nullopt;
    const std::string& strategy = arguments.text("hub_strategy");
    const std::string token = text_or_empty(arguments, "hub_token");
    return PushSettings{.id = text_or_empty(arguments, "hub_model_id"),
                        .organization = text_or_empty(arguments, "push_to_hub_organization"),
                        .branch = text_or_empty(arguments, "hub_revision"),
                        .token = token.empty() ? text_or_empty(arguments, "token") : token,
                        .is_private = arguments.optional_flag("hub_private_repo"),
                        .strategy = strategy == "end"               ? Strategy::end
                                    : strategy == "checkpoint"      ? Strategy::last_checkpoint
                                    : strategy == "all_checkpoints" ? Strategy::all_checkpoints
                                                                    : Strategy::every_save,
                        .always = arguments.flag("hub_always_push")};
}

CheckpointSettings checkpoint_settings(const Arguments& arguments) {
    return {.resume = resume_settings(arguments),
            .overwrite_output_dir = arguments.flag("overwrite_output_dir"),
            .steal_lock = arguments.flag("steal_lock"),
            .save_only_model = arguments.flag("save_only_model"),
            .save_final_model = arguments.flag("save_final_model"),
            .save_on_sigterm = arguments.flag("enable_jit_checkpoint"),
            .buffer_gigabytes = arguments.optional_number("save_buffer_gb")};
}

LogSettings log_settings(const Arguments& arguments) {
    LogSettings settings = message_settings(arguments);
    if (arguments.text("log_format") == "json") settings.records = LogSettings::Records::json;
    settings.disable_progress_bar = arguments.optional_flag("disable_tqdm");
    settings.tensor_board = arguments.words("report_to") == std::vector<std::string>{"tensorboard"};
    settings.tensor_board_folder = optional_path(arguments, "logging_dir");
    return settings;
}

std::optional<SampleSettings> sample_settings(const Arguments& arguments) {
    if (!arguments.has("eval_prompts")) return std::nullopt;
    SampleSettings settings{.prompts = arguments.text("eval_prompts"),
                            .max_new_tokens = arguments.integer("eval_prompts_max_new_tokens"),
                            .sampling = {.temperature = arguments.number("eval_prompts_temperature"),
                                         .top_k = arguments.integer("eval_prompts_top_k"),
                                         .top_p = arguments.number("eval_prompts_top_p"),
                                         .seed = static_cast<std::uint64_t>(arguments.integer("seed"))}};
    return settings;
}

// -------------------------------------------------------------------------------------------------------
// record

SettingsRecord run_clm_record(const RunArguments& run) {
    const bool sft = &run.arguments.table() == &sft_table();
    SettingsRecord record = settings_record(
        run.arguments, sft ? sft_arguments_compared_on_resume() : arguments_compared_on_resume());
    if (!run.arguments.json("deepspeed").is_null())
        record.check_updates = [run](std::int64_t updates) {
            read_deepspeed_settings(run.arguments.json("deepspeed"), "--deepspeed", run.arguments,
                                    {.world_size = run.replicas, .total_steps = updates});
        };
    return record;
}

}  // namespace

std::span<const std::string_view> arguments_compared_on_resume() {
    static constexpr std::array<std::string_view, 58> names = {
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "allow_special_tokens",
        "assistant_only_loss",
        "bf16",
        "block_size",
        "chat_template_path",
        "completion_only_loss",
        "data_seed",
        "dataloader_drop_last",
        "dataset_config_name",
        "dataset_name",
        "dataset_train_split",
        "dataset_weights",
        "dtype",
        "eos_token",
        "fp16",
        "fp8",
        "gradient_accumulation_steps",
        "hf_compat",
        "keep_linebreaks",
        "label_smoothing_factor",
        "learning_rate",
        "loss_denominator",
        "lr_scheduler_kwargs",
        "lr_scheduler_type",
        "master_weights",
        "max_grad_norm",
        "max_length",
        "max_steps",
        "max_train_samples",
        "moments_dtype",
        "neftune_noise_alpha",
        "num_train_epochs",
        "on_nan",
        "optim",
        "optim_args",
        "packing",
        "pad_token",
        "padding_free",
        "preprocessing_num_workers",
        "residual_dtype",
        "router_aux_loss_coef",
        "seed",
        "sft",
        "static",
        "stochastic_rounding",
        "streaming",
        "text_column",
        "tf32",
        "train_file",
        "train_sampling_strategy",
        "truncation_mode",
        "validation_split_percentage",
        "warmup_ratio",
        "warmup_steps",
        "weight_decay",
    };
    return names;
}

std::span<const std::string_view> sft_arguments_compared_on_resume() {
    static const std::vector<std::string_view> names = [] {
        std::vector<std::string_view> all;
        for (const std::string_view name : arguments_compared_on_resume())
            if (sft_table().find(name) != nullptr) all.push_back(name);
        for (const char* name : {"dataset_num_proc", "dataset_text_field", "packing_strategy"})
            all.emplace_back(name);
        return all;
    }();
    return names;
}

RunSettings run_settings(const RunArguments& run) {
    const Arguments& arguments = run.arguments;
    DeviceSettings device = device_settings(arguments);
    device.fit_batch = arguments.flag("auto_find_batch_size");
    SettingNames names;
    if (is_sft(arguments)) names.block_size = "--max_length";
    return {.do_train = arguments.flag("do_train"),
            .do_eval = arguments.flag("do_eval"),
            .dry_run = arguments.flag("dry_run"),
            .model = model_settings(arguments),
            .adapters = adapter_settings(arguments),
            .data = data_settings(arguments),
            .loop = loop_settings(arguments),
            .optimizer = optimizer_settings(arguments),
            .step = step_settings(run),
            .precision = precision_settings(run),
            .mesh = mesh_settings(run),
            .checkpoints = checkpoint_settings(arguments),
            .push = push_settings(arguments),
            .logs = log_settings(arguments),
            .samples = sample_settings(arguments),
            .profile = profile_settings(arguments),
            .device = device,
            .names = names,
            .record = run_clm_record(run)};
}

}  // namespace drover
