#include "args/deepspeed_settings.h"

#include <fmt/format.h>

#include <cmath>

#include "args/object_reader.h"
#include "core/error.h"
#include "core/number_text.h"

namespace drover {
namespace {

/// Collects the differences between a configuration and the arguments.
class Comparison {
  public:
    void number(ObjectReader& reader, std::string_view key, double meant, std::string_view flag) {
        if (!reader.has(key) || reader.is_auto(key)) return;
        if (const double read = reader.number(key, 0); read != meant)
            add(reader, key, fmt::format("{}", read), flag, fmt::format("{}", meant));
    }

    void flag(ObjectReader& reader, std::string_view key, bool meant, std::string_view flag) {
        if (!reader.has(key) || reader.is_auto(key)) return;
        if (const bool read = reader.flag(key, false); read != meant)
            add(reader, key, read ? "true" : "false", flag, meant ? "yes" : "no");
    }

    void add(const ObjectReader& reader, std::string_view key, std::string_view read, std::string_view flag,
             std::string_view meant) {
        lines_ += fmt::format("\n  {}: {} is {}, but {} is {}", reader.where(), key, read, flag, meant);
    }

    void check(const std::string& where) const {
        if (lines_.empty()) return;
        throw UsageError(fmt::format("{} and the command line disagree:{}.", where, lines_),
                         "Write \"auto\" in the file for what the command line says.");
    }

  private:
    std::string lines_;
};

class DeepSpeedReader {
  public:
    DeepSpeedReader(const Json& config, std::string where, const Arguments& arguments,
                    const DeepSpeedRun& run)
        : reader_(config, std::move(where)), arguments_(arguments), run_(run) {
        if (run_.total_steps) return;
        if (const std::int64_t max_steps = arguments.integer("max_steps"); max_steps > 0)
            run_.total_steps = max_steps;
    }

    DeepSpeedSettings read() {
        read_batch();
        read_optimizer();
        read_scheduler();
        read_precision();
        read_zero();
        read_recompute();
        read_rest();
        reader_.check_all_known();
        comparison_.check(reader_.where());
        return std::move(settings_);
    }

  private:
    void explain(std::string_view line) {
        settings_.explanations.push_back(fmt::format("{}: {}", reader_.where(), line));
    }

    void explain_no_effect(ObjectReader& reader, const std::vector<std::string>& keys, std::string_view why) {
        const std::vector<std::string> given = reader.without_effect(keys);
        if (!given.empty())
            settings_.explanations.push_back(
                fmt::format("{}: {} {}", reader.where(), fmt::join(given, ", "), why));
    }

    void read_batch() {
        const auto micro = arguments_.integer("per_device_train_batch_size");
        const auto accumulation = arguments_.integer("gradient_accumulation_steps");
        comparison_.number(reader_, "train_micro_batch_size_per_gpu", static_cast<double>(micro),
                           "--per_device_train_batch_size");
        comparison_.number(reader_, "gradient_accumulation_steps", static_cast<double>(accumulation),
                           "--gradient_accumulation_steps");
        comparison_.number(
            reader_, "train_batch_size",
            static_cast<double>(micro) * static_cast<double>(accumulation) *
                static_cast<double>(run_.world_size),
            fmt::format("{} · batch {} · accumulation {}", counted(run_.world_size, "process", "processes"),
                        micro, accumulation));
        const double clip = arguments_.number("max_grad_norm");
        comparison_.number(reader_, "gradient_clipping", clip, "--max_grad_norm");
        if (!reader_.has("gradient_clipping") && clip > 0)
            explain(fmt::format(
                "there is no gradient_clipping, so --max_grad_norm {} is used (DeepSpeed would not clip).",
                clip));
    }

    void read_optimizer() {
        if (!reader_.has("optimizer")) return;
        ObjectReader block = reader_.object("optimizer");
        block.choice("type", "", {"AdamW", "Adam"});
        settings_.optimizer = "adamw_torch";
        if (arguments_.given("optim") && !arguments_.text("optim").starts_with("adamw"))
            throw UsageError(fmt::format("--optim is {}, but {} has an optimizer block.",
                                         arguments_.text("optim"), reader_.where()),
                             "Remove the block, or use --optim adamw_torch.");
        ObjectReader params = block.object("params");
        comparison_.number(params, "lr", arguments_.number("learning_rate"), "--learning_rate");
        comparison_.number(params, "eps", arguments_.number("adam_epsilon"), "--adam_epsilon");
        comparison_.number(params, "weight_decay", arguments_.number("weight_decay"), "--weight_decay");
        compare_betas(params);
        if (!params.flag("adam_w_mode", true))
            params.fail("adam_w_mode", "is false, which adds the decay to the gradient",
                        "Only AdamW's decay is available.");
        if (!params.flag("bias_correction", true))
            params.fail("bias_correction", "is false", "AdamW is only available with bias correction.");
        explain_no_effect(params, {"torch_adam", "fp32_optimizer_states", "amsgrad", "fused"},
                          "choose between versions of the same update.");
        if (!params.has("lr"))
            explain(
                fmt::format("its optimizer block gives no lr, so --learning_rate {} is used (DeepSpeed would "
                            "take 0.001).",
                            arguments_.number("learning_rate")));
        params.check_all_known();
        explain_no_effect(block, {"legacy_fusion"}, "has no effect here.");
        block.check_all_known();
    }

    void compare_betas(ObjectReader& params) {
        if (!params.has("betas") || params.is_auto("betas")) return;
        const Json& betas = params.value("betas");
        if (!betas.is_array() || betas.size() != 2 || !betas[0].is_number() || !betas[1].is_number())
            params.fail("betas", "is not a list of two numbers", "Write [0.9, 0.999] or \"auto\".");
        const double beta1 = arguments_.number("adam_beta1"), beta2 = arguments_.number("adam_beta2");
        if (betas[0].get<double>() != beta1 || betas[1].get<double>() != beta2)
            comparison_.add(params, "betas",
                            fmt::format("[{}, {}]", betas[0].get<double>(), betas[1].get<double>()),
                            "--adam_beta1, --adam_beta2", fmt::format("{}, {}", beta1, beta2));
    }

    /// The number of warm-up updates; absent if it depends on a number of steps that is unknown.
    std::optional<double> warmup_steps() const {
        const double steps = arguments_.number("warmup_steps"), ratio = arguments_.number("warmup_ratio");
        if (steps >= 1) return std::floor(steps);
        const double share = steps > 0 ? steps : ratio;
        if (share == 0) return 0;
        if (!run_.total_steps) return std::nullopt;
        return std::ceil(static_cast<double>(*run_.total_steps) * share);
    }

    void read_scheduler() {
        if (!reader_.has("scheduler")) return;
        ObjectReader block = reader_.object("scheduler");
        const std::string type = block.choice("type", "", {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
        settings_.schedule = type == "WarmupLR"        ? "constant_with_warmup"
                             : type == "WarmupDecayLR" ? "linear"
                                                       : "cosine";
        ObjectReader params = block.object("params");
        comparison_.number(params, "warmup_min_lr", 0, "the rate before warm-up");
        comparison_.number(params, "warmup_max_lr", arguments_.number("learning_rate"), "--learning_rate");
        params.has("warmup_num_steps");
        if (const auto steps = warmup_steps())
            comparison_.number(params, "warmup_num_steps", *steps, "--warmup_steps");
        params.has("total_num_steps");
        if (run_.total_steps)
            comparison_.number(params, "total_num_steps", static_cast<double>(*run_.total_steps),
                               "the number of updates");
        comparison_.number(params, "warmup_min_ratio", 0, "the rate before warm-up");
        comparison_.number(params, "cos_min_ratio", 0, "the rate at the end of cosine");
        const std::string curve = params.choice("warmup_type", "log", {"log", "linear"});
        if (curve == "log" && warmup_steps().value_or(1) > 0)
            explain(
                "warm-up is linear here, as transformers' own is (DeepSpeed's is logarithmic unless "
                "warmup_type is linear).");
        if (!params.has("warmup_max_lr") || !params.has("warmup_num_steps"))
            explain(
                fmt::format("its scheduler block leaves out rate or warm-up, so --learning_rate {} and "
                            "--warmup_steps {} are used.",
                            arguments_.number("learning_rate"), arguments_.number("warmup_steps")));
        explain_no_effect(params, {"last_batch_iteration"}, "is known from the checkpoint.");
        params.check_all_known();
        block.check_all_known();
    }

    void read_precision() {
        const bool fp16_asked = arguments_.flag("fp16") || arguments_.flag("fp16_full_eval");
        const bool bf16_asked = arguments_.flag("bf16") || arguments_.flag("bf16_full_eval");
        ObjectReader fp16 = reader_.object("fp16");
        comparison_.flag(fp16, "enabled", fp16_asked, "--fp16");
        settings_.fp16 = fp16.is_auto("enabled") ? fp16_asked : fp16.flag("enabled", false);
        settings_.loss_scale = scale(fp16, "loss_scale", 0);
        settings_.min_loss_scale = scale(fp16, "min_loss_scale", 1);
        settings_.initial_scale_power = fp16.integer("initial_scale_power", 16, 0);
        if (settings_.initial_scale_power > 60)
            fp16.fail("initial_scale_power", fmt::format("is {}", settings_.initial_scale_power),
                      "Use 0 to 60; 16 is usual.");
        settings_.loss_scale_window = fp16.integer("loss_scale_window", 1000, 1);
        settings_.hysteresis = fp16.integer("hysteresis", 2, 1);
        explain_no_effect(fp16, {"auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads"},
                          "has no effect here.");
        fp16.check_all_known();

        ObjectReader bf16 = reader_.object("bf16");
        comparison_.flag(bf16, "enabled", bf16_asked, "--bf16");
        settings_.bf16 = bf16.is_auto("enabled") ? bf16_asked : bf16.flag("enabled", false);
        const bool bf16_alone = bf16.flag("bf16_master_weights_and_grads", false);
        settings_.bf16_has_master = settings_.bf16 && !bf16_alone;
        explain_no_effect(bf16, {"immediate_grad_update", "check_grad_overflow"}, "has no effect here.");
        bf16.check_all_known();
        if (settings_.fp16 && settings_.bf16)
            throw UsageError(fmt::format("{} switches fp16 and bf16 on.", reader_.where()),
                             "Keep one of them.");

        ObjectReader amp = reader_.object("amp");
        comparison_.flag(amp, "enabled", false, "mixing precisions with Apex");
        explain_no_effect(amp, {"opt_level", "loss_scale", "min_loss_scale", "max_loss_scale"},
                          "belongs to Apex, which is not used.");
        amp.check_all_known();
    }

    static double scale(ObjectReader& block, std::string_view key, double fallback) {
        if (block.is_auto(key)) return fallback;
        const double read = block.number(key, fallback);
        if (read < 0) block.fail(key, fmt::format("is {}", read), "Use 0 or more.");
        return read;
    }

    /// The other keys of an offload block only tune DeepSpeed's copies.
    static std::string offload_device(ObjectReader& zero, std::string_view key) {
        if (!zero.has(key)) return "none";
        return zero.object(key).choice("device", "none", {"none", "cpu", "nvme"});
    }

    void read_zero() {
        ObjectReader zero = reader_.object("zero_optimization");
        const std::int64_t stage = zero.integer("stage", 0, 0);
        if (stage > 3) zero.fail("stage", fmt::format("is {}", stage), "Use 0, 1, 2 or 3.");
        settings_.stage = static_cast<int>(stage);
        if (offload_device(zero, "offload_param") != "none")
            explain("offload_param is not available; weights and gradients stay on the device.");
        const std::string optimizer_device = offload_device(zero, "offload_optimizer");
        const bool old_spelling = zero.flag("cpu_offload", false);
        settings_.offload_optimizer = optimizer_device != "none" || old_spelling;
        if (optimizer_device == "nvme")
            explain("offload_optimizer keeps the state in the host's memory, not on a disk.");
        if (settings_.offload_optimizer)
            explain(
                "offload_optimizer: a GPU makes the updates itself, and accesses the state in the host's "
                "memory.");
        explain_no_effect(zero,
                          {"allgather_partitions",
                           "allgather_bucket_size",
                           "overlap_comm",
                           "reduce_scatter",
                           "reduce_bucket_size",
                           "contiguous_gradients",
                           "sub_group_size",
                           "stage3_max_live_parameters",
                           "stage3_max_reuse_distance",
                           "stage3_prefetch_bucket_size",
                           "stage3_param_persistence_threshold",
                           "stage3_module_granularity_threshold",
                           "max_live_parameters",
                           "max_reuse_distance",
                           "prefetch_bucket_size",
                           "param_persistence_threshold",
                           "model_persistence_threshold",
                           "ignore_unused_parameters",
                           "round_robin_gradients",
                           "memory_efficient_linear",
                           "use_all_reduce_for_fetch_params"},
                          "tune DeepSpeed's buffers; the memory plan here has its own, and prints them.");
        explain_no_effect(
            zero,
            {"stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
             "gather_16bit_weights_on_model_save", "load_from_fp32_weights", "elastic_checkpoint"},
            "are not needed: a whole Hugging Face model is always written.");
        explain_no_effect(
            zero,
            {"cpu_offload_params", "cpu_offload_use_pin_memory", "zero_hpz_partition_size",
             "zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
             "mics_shard_size", "mics_hierarchical_params_gather", "legacy_stage1"},
            "is not done here.");
        zero.check_all_known();
    }

    void read_recompute() {
        if (!reader_.has("activation_checkpointing")) return;
        ObjectReader block = reader_.object("activation_checkpointing");
        settings_.recompute = true;
        explain_no_effect(block,
                          {"partition_activations", "cpu_checkpointing", "contiguous_memory_optimization",
                           "number_checkpoints", "synchronize_checkpoint_boundary", "profile"},
                          "tune how blocks are recomputed; here every block is, as with --recompute full.");
        block.check_all_known();
    }

    void read_rest() {
        explain_no_effect(reader_,
                          {"steps_per_print", "wall_clock_breakdown", "dump_state", "flops_profiler",
                           "comms_logger", "tensorboard", "wandb", "csv_monitor", "comet"},
                          "choose what DeepSpeed prints; DeepSpeed is not used.");
        explain_no_effect(reader_,
                          {"zero_allow_untested_optimizer",
                           "zero_force_ds_cpu_optimizer",
                           "communication_data_type",
                           "prescale_gradients",
                           "gradient_predivide_factor",
                           "sparse_gradients",
                           "seq_parallel_communication_data_type",
                           "data_types",
                           "checkpoint",
                           "aio",
                           "nvme",
                           "autotuning",
                           "elasticity",
                           "memory_breakdown",
                           "disable_allgather",
                           "use_data_before_expert_parallel_",
                           "zero_allow_comm_data_type_fp32",
                           "compile",
                           "graph_harvesting",
                           "dataloader_drop_last"},
                          "belongs to DeepSpeed's engine, which is not used.");
        for (const char* key :
             {"compression_training", "curriculum_learning", "data_efficiency", "progressive_layer_drop",
              "sparse_attention", "quantize_training", "hybrid_engine", "eigenvalue"})
            if (reader_.has(key))
                reader_.fail(key, "changes the training in a way that is not available", "Remove the block.");
        struct Block {
            const char *key, *flag;
        };
        for (const auto& [key, flag] :
             {Block{"pipeline", "pipeline_parallel_size"}, Block{"tensor_parallel", "tensor_parallel_size"}})
            if (reader_.has(key))
                reader_.fail(key, "does not spread the model here",
                             fmt::format("Remove the block, and use --{}.", flag));
    }

    ObjectReader reader_;
    const Arguments& arguments_;
    DeepSpeedRun run_;
    DeepSpeedSettings settings_;
    Comparison comparison_;
};

}  // namespace

DeepSpeedSettings read_deepspeed_settings(const Json& config, const std::string& where,
                                          const Arguments& arguments, const DeepSpeedRun& run) {
    return DeepSpeedReader(config, where, arguments, run).read();
}

}  // namespace drover
