#include "run/run_clm_settings.h"

#include <fmt/format.h>

#include "args/words.h"
#include "core/error.h"

namespace drover {
namespace {

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

MoeMode moe_mode(const Arguments& arguments) {
    return arguments.flag("static")      ? MoeMode::all_tokens
           : arguments.flag("gmm_stack") ? MoeMode::stacked
                                         : MoeMode::grouped;
}

/// The number that --optim_args gives an optimizer's setting.
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

void add_fsdp_settings(CausalLmOptions& options, const FsdpSettings& fsdp) {
    // The model's only buffers are the tables of rotary angles.
    if (!fsdp.buffer_dtype.empty())
        options.rope_rounding = floating_dtype_from_name(fsdp.buffer_dtype, "buffer_dtype");
    options.gather_ahead = {.forward = fsdp.forward_prefetch, .backward = fsdp.backward_prefetch};
}

}  // namespace

TrainerSettings trainer_settings(const Arguments& arguments) {
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
    settings.metric_for_best_model = arguments.optional_text("metric_for_best_model").value_or("");
    settings.greater_is_better = arguments.optional_flag("greater_is_better");
    settings.early_stopping_patience = arguments.optional_integer("early_stopping_patience");
    settings.early_stopping_threshold = arguments.number("early_stopping_threshold");
    settings.dataloader_drop_last = arguments.flag("dataloader_drop_last");
    settings.prediction_loss_only = arguments.flag("prediction_loss_only");
    settings.ignore_data_skip = arguments.flag("ignore_data_skip");
    settings.include_tokens_per_second = arguments.flag("include_tokens_per_second");
    settings.include_num_input_tokens_seen = counted_tokens(arguments.text("include_num_input_tokens_seen"));
    settings.seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    if (const auto seed = arguments.optional_integer("data_seed"))
        settings.data_seed = static_cast<std::uint64_t>(*seed);
    settings.finish();
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

Precision chosen_precision(const RunArguments& run, std::optional<DType> stored, Device device) {
    const Arguments& arguments = run.arguments;
    const HfCompat::UnsetDtype unset = hf_compat(arguments).unset_dtype;
    const bool unset_is_float32 =
        unset == HfCompat::UnsetDtype::float32 ||
        (unset == HfCompat::UnsetDtype::float32_when_loaded && arguments.has("model_name_or_path"));
    const std::string asked =
        arguments.optional_text("dtype").value_or(unset_is_float32 ? "float32" : "auto");
    const DType weights =
        asked == "auto" ? stored.value_or(DType::f32) : floating_dtype_from_name(asked, "--dtype");
    const bool half = weights == DType::f16 || arguments.flag("fp16");
    if (half && device == Device::cpu)
        throw Error("fp16 is not available on the CPU.",
                    "Use --bf16, which needs no loss scaling, or float32.");
    // Half precision weights without a master copy would stand still: updates are below their last digit.
    Precision precision = half                     ? Precision::with_master(DType::f16)
                          : weights == DType::bf16 ? Precision::pure_bf16()
                          : arguments.flag("bf16") ? Precision::with_master(DType::bf16)
                                                   : Precision::fp32();
    if (const auto master = arguments.optional_flag("master_weights");
        master && precision.parameters == DType::bf16 && *master != precision.master)
        precision = *master ? Precision::with_master(DType::bf16) : Precision::pure_bf16();
    if (const auto moments = arguments.optional_text("moments_dtype"))
        precision.moments = floating_dtype_from_name(*moments, "--moments_dtype");
    if (arguments.text("residual_dtype") == "float32") precision.residual = DType::f32;
    precision.stochastic_rounding = arguments.flag("stochastic_rounding");
    if (run.fsdp && run.fsdp->fp32_reduce_scatter) precision.gradients = DType::f32;
    return precision;
}

std::string precision_text(const Precision& precision) {
    return fmt::format("weights {}, residual stream {}, gradients {}, moments {}, {}",
                       name_of(precision.parameters), name_of(precision.residual),
                       name_of(precision.gradients), name_of(precision.moments),
                       precision.master                ? "fp32 master copy"
                       : precision.stochastic_rounding ? "no master copy, stochastic rounding"
                                                       : "no master copy");
}

OptimizerSettings optimizer_settings(const Arguments& arguments) {
    OptimizerSettings settings =
        OptimizerSettings::named(arguments.text("optim"), arguments.number("weight_decay"));
    settings.adamw.beta1 = arguments.number("adam_beta1");
    settings.adamw.beta2 = arguments.number("adam_beta2");
    settings.adamw.eps = arguments.number("adam_epsilon");
    settings.rounding_seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    for (const auto& [key, text] :
         key_values(arguments.optional_text("optim_args").value_or(""), "--optim_args")) {
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

OnNonFinite on_non_finite(const Arguments& arguments) {
    const std::string& text = arguments.text("on_nan");
    return text == "stop" ? OnNonFinite::stop : text == "skip" ? OnNonFinite::skip : OnNonFinite::go_on;
}

TrainEngineOptions engine_options(const RunArguments& run, const Precision& precision) {
    const Arguments& arguments = run.arguments;
    TrainEngineOptions options;
    options.model.precision = precision;
    options.model.recompute = {.kind = recompute_from_name(arguments.text("recompute"), "--recompute"),
                               .blocks = arguments.optional_integer("recompute_blocks").value_or(INT64_MAX)};
    options.model.moe_mode = moe_mode(arguments);
    options.model.label_smoothing = arguments.number("label_smoothing_factor");
    options.model.neftune_alpha = arguments.optional_number("neftune_noise_alpha").value_or(0);
    if (precision.parameters == DType::f16) options.loss_scaling = LossScaler::Settings{};
    options.init = init_kind_from_name(arguments.text("init"), "--init");
    options.optimizer = optimizer_settings(arguments);
    options.max_gradient_norm = arguments.number("max_grad_norm");
    options.noise_seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    options.skip_non_finite = on_non_finite(arguments) != OnNonFinite::go_on;
    options.compat = hf_compat(arguments);
    options.shared_batches = run.batch_is_spmd;
    if (run.fsdp) add_fsdp_settings(options.model, *run.fsdp);
    options.offload_optimizer =
        (run.fsdp && run.fsdp->offload) || (run.deepspeed && run.deepspeed->offload_optimizer);
    return options;
}

TrainEngineOptions engine_options(const RunArguments& run, const Precision& precision,
                                  const MeshSettings& mesh, Device device, std::int64_t rows,
                                  std::int64_t row_length) {
    TrainEngineOptions options = engine_options(run, precision);
    if (device == Device::cpu) options.offload_optimizer = false;  // it is in the host's memory anyway
    options.model.rows = rows;
    options.model.row_length = row_length;
    options.sharding = mesh.sharding;
    options.sequence_parallel = mesh.splits_tokens(row_length);
    return options;
}

}  // namespace drover
