#include "run/engine_settings.h"

#include <fmt/format.h>

#include "core/error.h"
#include "model/partition.h"

namespace drover {
namespace {

DType weights_dtype(const RunSettings& settings, std::optional<DType> stored) {
    if (settings.precision.weights) return *settings.precision.weights;
    const HfCompat::UnsetDtype unset = settings.step.compat.unset_dtype;
    const bool unset_is_float32 =
        unset == HfCompat::UnsetDtype::float32 ||
        (unset == HfCompat::UnsetDtype::float32_when_loaded && !settings.model.model_name_or_path.empty());
    if (!settings.precision.weights_as_stored && unset_is_float32) return DType::f32;
    return stored.value_or(DType::f32);
}

}  // namespace

Precision chosen_precision(const RunSettings& settings, std::optional<DType> stored, Device device) {
    const PrecisionSettings& asked = settings.precision;
    const DType weights = weights_dtype(settings, stored);
    const bool half = weights == DType::f16 || asked.fp16;
    if (half && device == Device::cpu)
        throw Error("fp16 is not available on the CPU.",
                    "Use --bf16, which needs no loss scaling, or float32.");
    // Half-precision weights without a master copy would not change: updates are below their last digit.
    Precision precision = half                     ? Precision::with_master(DType::f16)
                          : weights == DType::bf16 ? Precision::pure_bf16()
                          : asked.bf16             ? Precision::with_master(DType::bf16)
                                                   : Precision::fp32();
    if (asked.master_weights && precision.parameters == DType::bf16 &&
        *asked.master_weights != precision.master)
        precision = *asked.master_weights ? Precision::with_master(DType::bf16) : Precision::pure_bf16();
    if (asked.moments) precision.moments = *asked.moments;
    if (asked.float32_residual) precision.residual = DType::f32;
    precision.stochastic_rounding = asked.stochastic_rounding;
    if (asked.float32_gradient_sums) precision.gradients = DType::f32;
    return precision;
}

namespace {

std::string_view fp8_text(Fp8Recipe recipe) {
    switch (recipe) {
        case Fp8Recipe::tensorwise:
            return ", blocks' products in FP8";
        case Fp8Recipe::blockwise:
            return ", blocks' products in FP8 with a scale for every 128 numbers";
        default:
            return "";
    }
}

}  // namespace

std::string precision_text(const Precision& precision, Fp8Recipe fp8) {
    return fmt::format("weights {}, residual stream {}, gradients {}, moments {}, {}{}",
                       name_of(precision.parameters), name_of(precision.residual),
                       name_of(precision.gradients), name_of(precision.moments),
                       precision.master                ? "fp32 master copy"
                       : precision.stochastic_rounding ? "no master copy, stochastic rounding"
                                                       : "no master copy",
                       fp8_text(fp8));
}

TrainEngineOptions engine_options(const RunSettings& settings, const Precision& precision) {
    const StepSettings& step = settings.step;
    TrainEngineOptions options;
    options.model.precision = precision;
    options.model.recompute = step.recompute;
    options.model.fp8 = step.fp8;
    options.model.moe_mode = step.moe_mode;
    options.model.label_smoothing = step.label_smoothing;
    options.model.neftune_alpha = step.neftune_alpha;
    options.model.counts_predictions = settings.loop.sft_records;
    options.model.rope_rounding = step.rope_rounding;
    options.model.gather_ahead = {.forward = step.gather_ahead_in_forward,
                                  .backward = step.gather_ahead_in_backward};
    if (precision.parameters == DType::f16) options.loss_scaling = LossScaling{};
    options.init = step.init;
    options.optimizer = settings.optimizer;
    options.max_gradient_norm = step.max_grad_norm;
    options.noise_seed = settings.loop.seed;
    options.skip_non_finite = step.on_non_finite != OnNonFinite::proceed;
    options.compat = step.compat;
    options.shared_batches = settings.mesh.batch_is_spmd;
    options.offload_optimizer = step.offload_optimizer;
    return options;
}

TrainEngineOptions engine_options(const RunSettings& settings, const Precision& precision,
                                  const ModelConfig& config, const MeshPlan& mesh, Device device,
                                  std::int64_t rows, std::int64_t row_length) {
    TrainEngineOptions options = engine_options(settings, precision);
    if (device == Device::cpu) options.offload_optimizer = false;  // it is in host memory anyway
    options.model.rows = rows;
    options.model.row_length = row_length;
    options.sharding = mesh.sharding;
    options.sequence_parallel = mesh.splits_tokens(row_length);
    options.pipeline = mesh.pipeline;
    options.pipeline.micro_batches = static_cast<int>(settings.loop.gradient_accumulation_steps);
    if (mesh.balances_pipeline)
        options.pipeline.cuts = balanced_cuts(
            config, mesh.stages(), {.row_length = row_length, .recompute = options.model.recompute});
    return options;
}

}  // namespace drover
