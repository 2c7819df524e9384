#include "args/nxd_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "args/argument_value.h"
#include "args/common_settings.h"
#include "args/pipeline_arguments.h"
#include "core/error.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The steps of a trial (--precompile), as the run scripts have it.
constexpr std::int64_t trial_steps = 10;
/// Rows of this length have so large activations that the whole MLP is recomputed too.
constexpr std::int64_t longest_kept_mlp = 8192;

// -------------------------------------------------------------------------------------------------------
// what follows from what, and what does not go together

void settle_trial(Arguments& arguments) {
    if (!arguments.flag("precompile")) return;
    const ArgumentSource source{ArgumentSource::Kind::implied, "--precompile"};
    if (arguments.integer("max_steps") > trial_steps) arguments.set("max_steps", trial_steps, source);
    arguments.set("checkpoint_freq", -1, source);
    arguments.set("loading_step", "-1", source);
    arguments.explain(fmt::format(
        "--precompile: nothing has to be compiled; {} steps show that mesh, data, files and memory "
        "are right, and no checkpoint is loaded or written.",
        arguments.integer("max_steps")));
}

void explain_differences(Arguments& arguments) {
    for (const char* name : {"qkv_linear", "fuse_qkv", "save_load_xser"})
        if (arguments.given(name) && arguments.text("checkpoint_format") != "nxd")
            arguments.explain(
                fmt::format("--{} has no effect: it is about the files of --checkpoint_format nxd.", name));
    if (arguments.given("weight_decay"))
        arguments.explain(fmt::format("--weight_decay {} acts; run_llama_nxd.py takes 0.01 whatever it says.",
                                      arguments.number("weight_decay")));
    if (!arguments.flag("use_flash_attention"))
        arguments.explain(
            "--use_flash_attention 0: attention runs on the plain kernels, which are much slower on a GPU; a "
            "CPU "
            "has only one kernel.");
    if (!arguments.flag("use_gpu_compatible_precision") && arguments.text("dtype") != "bfloat16")
        arguments.explain(
            "--use_gpu_compatible_precision 0: weights are float32, so nothing is rounded at random; "
            "XLA_DOWNCAST_BF16=1 or --dtype bfloat16 makes them bfloat16.");
    if (arguments.flag("use_amp") && arguments.text("dtype") == "bfloat16")
        arguments.explain("--use_amp: weights are bfloat16 already, so it changes nothing.");
}

void check_batch(const Arguments& arguments) {
    const std::int64_t batch = arguments.integer("train_batch_size"),
                       parts = arguments.integer("num_microbatches");
    if (batch % parts != 0)
        throw UsageError(fmt::format("--train_batch_size {} cannot be cut into {} micro-batches of one size.",
                                     batch, parts),
                         "Choose --num_microbatches so that it divides the batch.");
}

void check_given_sources(const Arguments& arguments) {
    struct Source {
        const char *name, *remedy;
    };
    for (const Source& source :
         {Source{"training_config", "Name the folder of the model's config.json."},
          Source{"training_dir",
                 "Name a folder of tokenized blocks; `drover tokenize --llama-version 3` makes one."}})
        if (text_or_empty(arguments, source.name).empty())
            throw UsageError(fmt::format("--{} is not given.", source.name), source.remedy);
    for (const char* name : {"num_layer", "hidden_size"})
        if (arguments.integer(name) == 0)
            throw UsageError(fmt::format("--{} is 0.", name), "Use a number above 0, or -1: the config's.");
}

void check_rates(const Arguments& arguments) {
    const auto rate = arguments.optional_number("lr");
    if (!rate)
        throw UsageError("--lr is not given.", "Give the highest learning rate, for example --lr 1.5e-5.");
    if (const double lowest = arguments.optional_number("min_lr").value_or(0); lowest > *rate)
        throw UsageError(fmt::format("--min_lr {} is above --lr {}.", lowest, *rate), "Change one of them.");
}

bool saves(const Arguments& arguments) {
    return arguments.integer("checkpoint_freq") > 0 && arguments.has("checkpoint_dir");
}

void check_checkpoints(const Arguments& arguments) {
    const std::string& step = arguments.text("loading_step");
    const bool is_number =
        !step.empty() && step.size() < 19 && step.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number && step != "-1" && step != "latest_if_exists")
        throw UsageError(fmt::format("--loading_step is \"{}\", which names no checkpoint.", step),
                         "Use the number of a step, latest_if_exists, or -1 to load none.");
    const std::int64_t interval = arguments.integer("checkpoint_freq");
    const bool loads = step != "-1", has_tag = arguments.flag("pretrained_weight");
    if (const bool writes =
            arguments.given("checkpoint_freq") && interval > 0 && interval <= arguments.integer("max_steps");
        !arguments.has("checkpoint_dir") && (loads || has_tag || writes))
        throw UsageError(fmt::format("--{} needs --checkpoint_dir.",
                                     loads     ? "loading_step " + step
                                     : has_tag ? "pretrained_weight 1"
                                               : fmt::format("checkpoint_freq {}", interval)),
                         "Name the folder of the checkpoints.");
    if (has_tag && arguments.has("pretrained_weight_dir"))
        throw UsageError("--pretrained_weight 1 and --pretrained_weight_dir both name weights to start from.",
                         "Keep one of them.");
}

void check_mesh(const Arguments& arguments) {
    check_context_parallel(arguments);
    const std::int64_t size = arguments.integer("tensor_parallel_size"),
                       copies = arguments.integer("kv_replicator");
    if (size % copies != 0)
        throw UsageError(
            fmt::format("--kv_replicator {} does not divide --tensor_parallel_size {}.", copies, size),
            "Use a divisor.");
    pipeline_arguments(arguments);
}

// -------------------------------------------------------------------------------------------------------
// settings

fs::path folder_named(const Arguments& arguments, std::string_view name) {
    return with_home(text_or_empty(arguments, name));
}

ModelSettings nxd_model(const Arguments& arguments) {
    ModelSettings settings{.config_name = with_home(arguments.text("training_config")),
                           .num_layers = arguments.integer("num_layer"),
                           .hidden_size = arguments.integer("hidden_size"),
                           .without_tokenizer = true,
                           .least_positions = arguments.integer("seq_len")};
    if (arguments.flag("pretrained_weight"))
        settings.model_name_or_path = folder_named(arguments, "checkpoint_dir") / "pretrained_weight";
    if (arguments.has("pretrained_weight_dir"))
        settings.model_name_or_path = folder_named(arguments, "pretrained_weight_dir");
    return settings;
}

DataSettings nxd_data(const Arguments& arguments) {
    DataSettings settings{.datasets = {{.name = with_home(arguments.text("training_dir"))}},
                          .validation_split_percentage = 0,
                          .order = SampleOrder::sequential,
                          .strided = true};
    if (arguments.given("seq_len")) settings.block_size = arguments.integer("seq_len");
    return settings;
}

TrainerSettings nxd_loop(const Arguments& arguments) {
    TrainerSettings settings;
    const bool loads = arguments.text("loading_step") != "-1";
    settings.output_dir = saves(arguments) || loads ? folder_named(arguments, "checkpoint_dir") : fs::path();
    settings.max_steps = arguments.integer("max_steps");
    settings.gradient_accumulation_steps = arguments.integer("num_microbatches");
    settings.per_device_train_batch_size =
        arguments.integer("train_batch_size") / settings.gradient_accumulation_steps;
    settings.learning_rate = arguments.number("lr");
    settings.lr_scheduler_type = "nxd_cosine";
    settings.lr_scheduler_kwargs =
        Json{{"min_lr", arguments.optional_number("min_lr").value_or(0)},
             {"constant_steps", arguments.optional_integer("constant_steps").value_or(0)}};
    settings.warmup_steps = static_cast<double>(arguments.optional_integer("warmup_steps").value_or(0));
    settings.logging_steps = static_cast<double>(arguments.integer("logging_interval"));
    settings.save_strategy = saves(arguments) ? IntervalStrategy::steps : IntervalStrategy::no;
    settings.save_steps =
        static_cast<double>(std::max<std::int64_t>(1, arguments.integer("checkpoint_freq")));
    settings.save_total_limit = std::max<std::int64_t>(0, arguments.integer("num_kept_checkpoint"));
    settings.saves_last_step = false;
    settings.checkpoint_prefix = "step_";
    settings.waits_for_checkpoints = !arguments.flag("async_checkpoint_saving");
    settings.dataloader_drop_last = true;
    settings.seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    settings.finish();
    return settings;
}

OptimizerSettings nxd_optimizer(const Arguments& arguments) {
    OptimizerSettings settings = OptimizerSettings::named("adamw_torch", arguments.number("weight_decay"));
    settings.adamw.beta1 = arguments.number("beta1");
    settings.adamw.beta2 = arguments.number("beta2");
    if (arguments.flag("use_fp32_optimizer")) {
        settings.adamw.eps = 1e-6;
        settings.adamw.form = AdamWForm::transformers;
    }
    settings.rounding_seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    return settings;
}

RecomputePolicy nxd_recompute(const Arguments& arguments) {
    if (!arguments.flag("use_selective_checkpoint")) return {.kind = Recompute::full};
    return {.kind = arguments.integer("seq_len") == longest_kept_mlp ? Recompute::selective_mlp
                                                                     : Recompute::selective};
}

StepSettings nxd_step(const Arguments& arguments) {
    return {.recompute = nxd_recompute(arguments),
            .fp8 = fp8_recipe_from_name(arguments.text("fp8"), "--fp8"),
            .init = init_kind_from_name(arguments.text("init"), "--init"),
            .compat = {.loss_denominator = HfCompat::LossDenominator::mean_of_micro_batches},
            .max_grad_norm = arguments.number("max_grad_norm"),
            .on_non_finite = on_non_finite(arguments)};
}

PrecisionSettings nxd_precision(const Arguments& arguments) {
    const bool bf16_weights = arguments.text("dtype") == "bfloat16";
    const bool masters = arguments.flag("use_gpu_compatible_precision");
    PrecisionSettings settings{.weights = bf16_weights ? DType::bf16 : DType::f32,
                               .bf16 = arguments.flag("use_amp")};
    if (bf16_weights) {
        settings.master_weights = masters;
        settings.stochastic_rounding = !masters;
    }
    if (arguments.flag("use_fp32_optimizer")) settings.moments = DType::f32;
    return settings;
}

MeshSettings nxd_mesh(const Arguments& arguments) {
    const PipelineArguments pipeline = pipeline_arguments(arguments);
    MeshSettings settings{
        .sharding = arguments.flag("use_zero1_optimizer") ? Sharding::zero1 : Sharding::replicated,
        .tensor_parallel_size = arguments.integer("tensor_parallel_size"),
        .pipeline_parallel_size = pipeline.ranks,
        .pipeline = pipeline.settings,
        .balances_pipeline = pipeline.balanced,
        .copies = 1};
    if (arguments.given("kv_replicator")) settings.key_value_copies = arguments.integer("kv_replicator");
    if (settings.tensor_parallel_size > 1 || arguments.given("use_sequence_parallel"))
        settings.sequence_parallel = arguments.flag("use_sequence_parallel");
    return settings;
}

ResumeSettings nxd_resume(const Arguments& arguments) {
    using From = ResumeSettings::From;
    const std::string& step = arguments.text("loading_step");
    const std::string words = "--loading_step " + step;
    if (step == "-1") return {.from = From::nowhere_unchecked, .asked_by = words};
    if (step == "latest_if_exists") return {.from = From::newest_if_any, .asked_by = words};
    return {.from = From::step, .step = std::stoll(step), .asked_by = words};
}

std::optional<NxdLayout> nxd_layout(const Arguments& arguments) {
    if (arguments.text("checkpoint_format") != "nxd") return std::nullopt;
    const bool linear = arguments.flag("qkv_linear");
    return NxdLayout{.qkv_linear = linear,
                     .fuse_qkv = linear && arguments.flag("fuse_qkv"),
                     .xser = arguments.flag("save_load_xser")};
}

CheckpointSettings nxd_checkpoints(const Arguments& arguments) {
    return {.resume = nxd_resume(arguments),
            .steal_lock = arguments.flag("steal_lock"),
            .save_final_model = false,
            .save_on_signals = saves(arguments),
            .result_files = false,
            .nxd = nxd_layout(arguments),
            .buffer_gigabytes = arguments.optional_number("save_buffer_gb")};
}

LogSettings nxd_logs(const Arguments& arguments) {
    LogSettings settings = message_settings(arguments);
    settings.records = LogSettings::Records::nxd;
    settings.disable_progress_bar = true;
    if (const fs::path folder = folder_named(arguments, "tb_dir"); !folder.empty())
        settings.tensor_board_folder = folder;
    if (!arguments.flag("precompile")) settings.metrics_file = folder_named(arguments, "metrics_file");
    return settings;
}

}  // namespace

std::span<const std::string_view> nxd_arguments_compared_on_resume() {
    static constexpr std::array<std::string_view, 21> names = {
        "beta1",
        "beta2",
        "constant_steps",
        "dtype",
        "fp8",
        "lr",
        "max_grad_norm",
        "max_steps",
        "min_lr",
        "num_microbatches",
        "on_nan",
        "seed",
        "seq_len",
        "tf32",
        "train_batch_size",
        "training_dir",
        "use_amp",
        "use_fp32_optimizer",
        "use_gpu_compatible_precision",
        "warmup_steps",
        "weight_decay",
    };
    return names;
}

Arguments parse_nxd_arguments(std::span<const std::string> words, const ParseOptions& options) {
    Arguments arguments = read_arguments(run_llama_nxd_table(), words, options);
    explain_given(arguments);
    apply_environment(arguments, options.environment, options.file);
    explain_lone_process(arguments, options);
    settle_trial(arguments);
    explain_differences(arguments);
    check_given_sources(arguments);
    check_rates(arguments);
    check_batch(arguments);
    check_checkpoints(arguments);
    check_mesh(arguments);
    return arguments;
}

RunSettings nxd_run_settings(const Arguments& arguments) {
    DeviceSettings device = device_settings(arguments);
    device.plain_attention = !arguments.flag("use_flash_attention");
    return {.do_train = true,
            .dry_run = arguments.flag("dry_run"),
            .model = nxd_model(arguments),
            .data = nxd_data(arguments),
            .loop = nxd_loop(arguments),
            .optimizer = nxd_optimizer(arguments),
            .step = nxd_step(arguments),
            .precision = nxd_precision(arguments),
            .mesh = nxd_mesh(arguments),
            .checkpoints = nxd_checkpoints(arguments),
            .logs = nxd_logs(arguments),
            .profile = profile_settings(arguments),
            .device = device,
            .names = {.model = arguments.flag("pretrained_weight") ? "--pretrained_weight 1"
                                                                   : "--pretrained_weight_dir",
                      .config = "--training_config",
                      .block_size = "--seq_len",
                      .output_dir = "--checkpoint_dir",
                      .start_over = "give --loading_step -1 to start over"},
            .record = settings_record(arguments, nxd_arguments_compared_on_resume())};
}

}  // namespace drover
