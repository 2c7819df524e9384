#include "args/parse_line.h"

namespace drover {
namespace {

using Sharding = FsdpSettings::Sharding;
using test::error_of_line;
using test::has_line;
using test::parse_line;
using test::plain_run;

FsdpSettings fsdp(const std::vector<std::string>& words, const std::string& config = "{}") {
    return *read_fsdp_settings(words, Json::parse(config), "--fsdp_config");
}

std::string fsdp_error(const std::vector<std::string>& words, const std::string& config = "{}") {
    return test::error_of<UsageError>([&] { fsdp(words, config); });
}

TEST(Fsdp, Words) {
    EXPECT_EQ(fsdp({"full_shard"}).sharding, Sharding::full_shard);
    EXPECT_EQ(fsdp({"auto_wrap"}).sharding, Sharding::full_shard);
    EXPECT_TRUE(fsdp({"auto_wrap"}).auto_wrap);
    EXPECT_EQ(fsdp({"shard_grad_op", "auto_wrap"}).sharding, Sharding::shard_grad_op);
    EXPECT_EQ(fsdp({"no_shard"}).sharding, Sharding::no_shard);
    EXPECT_EQ(fsdp({"hybrid_shard"}).sharding, Sharding::hybrid_shard);
    EXPECT_EQ(fsdp({"hybrid_shard_zero2", "offload"}).sharding, Sharding::hybrid_shard_zero2);
    EXPECT_EQ(fsdp({"true"}).sharding, Sharding::full_shard);
    EXPECT_FALSE(read_fsdp_settings({}, nullptr, "x").has_value());
    EXPECT_FALSE(read_fsdp_settings({"false"}, nullptr, "x").has_value());
    EXPECT_MENTIONS(fsdp_error({"full_shrad"}), "\"full_shrad\"");
    EXPECT_MENTIONS(fsdp_error({"offload"}), "offload");
    EXPECT_MENTIONS(fsdp_error({"full_shard", "shard_grad_op"}), "full_shard and for shard_grad_op");
}

TEST(Fsdp, Config) {
    const FsdpSettings settings =
        fsdp({"full_shard"}, R"({"fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer", "xla": true,
        "xla_fsdp_v2": true, "xla_fsdp_grad_ckpt": true, "state_dict_type": "sharded_state_dict", "xla_fsdp_settings":
        {"compute_dtype": "bfloat16", "buffer_dtype": "float32", "fp32_reduce_scatter": true, "reshard_after_forward": false}})");
    EXPECT_EQ(settings.wrap_classes, std::vector<std::string>{"LlamaDecoderLayer"});
    EXPECT_TRUE(settings.xla && settings.xla_fsdp_v2 && settings.activation_checkpointing);
    EXPECT_TRUE(settings.fp32_reduce_scatter);
    EXPECT_FALSE(settings.reshard_after_forward);
    EXPECT_EQ(settings.compute_dtype, "bfloat16");
    EXPECT_EQ(settings.buffer_dtype, "float32");
    EXPECT_TRUE(settings.sharded_state_dict);
    EXPECT_EQ(settings.explanations.size(), 2u);  // state_dict_type, reshard_after_forward
    EXPECT_EQ(fsdp({"full_shard"}, R"({"min_num_params": 1000})").min_num_params, 1000);
    EXPECT_EQ(fsdp({"full_shard"}, R"({"auto_wrap_policy": "NO_WRAP", "version": 2, "use_orig_params": false,
        "limit_all_gathers": true, "sync_module_states": true, "cpu_ram_efficient_loading": true, "min_num_params": 9})")
                  .explanations.size(),
              7u);
    EXPECT_TRUE(fsdp({"full_shard"}, R"({"cpu_offload": true, "offload_params": true})").offload);
    const auto flat = fsdp({"auto_wrap"}, R"({"xla": true, "xla_fsdp_settings": {"opt_flatten_overlap": true,
        "pin_layout_in_collective_ops": false, "flatten_parameters": true}})");
    EXPECT_EQ(flat.explanations.size(), 3u);
}

/// Hugging Face's defaults are off, but only explicit settings switch anything off here.
TEST(Fsdp, Prefetch) {
    const FsdpSettings plain = fsdp({"full_shard"}, "{}");
    EXPECT_TRUE(plain.forward_prefetch && plain.backward_prefetch);
    const FsdpSettings off =
        fsdp({"full_shard"}, R"({"forward_prefetch": false, "backward_prefetch": "no_prefetch"})");
    EXPECT_FALSE(off.forward_prefetch || off.backward_prefetch);
    EXPECT_EQ(off.explanations.size(), 2u);
    const FsdpSettings on =
        fsdp({"full_shard"}, R"({"fsdp_forward_prefetch": true, "fsdp_backward_prefetch": "BACKWARD_PRE"})");
    EXPECT_TRUE(on.forward_prefetch && on.backward_prefetch);
    EXPECT_EQ(on.explanations.size(), 0u);
    const FsdpSettings post = fsdp({"full_shard"}, R"({"backward_prefetch_policy": "BACKWARD_POST"})");
    EXPECT_TRUE(post.backward_prefetch);
    EXPECT_EQ(post.explanations.size(), 1u);
}

TEST(Fsdp, ComputeDtypeIsTheFlagForMixedPrecision) {
    const auto line = [](const std::string& dtype, const std::string& flags = "") {
        return plain_run + flags +
               " --fsdp auto_wrap --fsdp_config {\"xla_fsdp_settings\":{\"compute_dtype\":\"" + dtype +
               "\"}}";
    };
    EXPECT_TRUE(parse_line(line("bfloat16")).arguments.flag("bf16"));
    EXPECT_TRUE(parse_line(line("float16")).arguments.flag("fp16"));
    EXPECT_FALSE(parse_line(line("float32")).arguments.flag("bf16"));
    EXPECT_TRUE(parse_line(line("bfloat16", "--bf16=true")).arguments.flag("bf16"));
    EXPECT_MENTIONS(error_of_line(line("float32", "--bf16")), "compute_dtype is float32, but --bf16 is yes");
    EXPECT_MENTIONS(error_of_line(line("bfloat16", "--bf16 no")),
                    "compute_dtype is bfloat16, but --bf16 is no");
    EXPECT_MENTIONS(error_of_line(line("float32", "--dtype bfloat16")), "--dtype bfloat16");
}

TEST(Fsdp, BadConfigs) {
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"xla_fsdp_v3": true})"), "Did you mean xla_fsdp_v2?");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"xla_fsdp_settings": {"compute_type": "x"}})"),
                    "compute_dtype");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"xla_fsdp_settings": 3})"),
                    "xla_fsdp_settings is not a JSON object");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"xla": 1})"), "xla is 1");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"min_num_params": -1})"), "min_num_params is -1");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"min_num_params": 1e30})"), "min_num_params");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"transformer_layer_cls_to_wrap": [1]})"), "list of texts");
    EXPECT_MENTIONS(
        fsdp_error({"full_shard"}, R"({"min_num_params": 5, "transformer_layer_cls_to_wrap": "A"})"),
        "exclude");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"fsdp_xla": true, "xla": true})"),
                    "with and without fsdp_");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, R"({"backward_prefetch": "maybe"})"), "BACKWARD_PRE");
    EXPECT_MENTIONS(
        fsdp_error({"full_shard"}, R"({"cpu_ram_efficient_loading": true, "sync_module_states": false})"),
        "sync_module_states");
    EXPECT_MENTIONS(fsdp_error({"full_shard"}, "[]"), "not a JSON object");
    EXPECT_MENTIONS(error_of_line(plain_run + "--gradient_checkpointing --fsdp full_shard --fsdp_config "
                                              "{\"activation_checkpointing\":true}"),
                    "twice");
}

TEST(Fsdp, OlderFlags) {
    const RunArguments run =
        parse_line(plain_run + "--fsdp full_shard --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer");
    EXPECT_EQ(run.fsdp->wrap_classes, std::vector<std::string>{"LlamaDecoderLayer"});
    EXPECT_EQ(parse_line(plain_run + "--fsdp full_shard --fsdp_min_num_params 7").fsdp->min_num_params, 7);
    const RunArguments without = parse_line(plain_run + "--fsdp_config {\"xla\":true}");
    EXPECT_FALSE(without.fsdp.has_value());
    EXPECT_TRUE(has_line(without.arguments, "has no effect without --fsdp"));
}

DeepSpeedSettings deepspeed(const std::string& config, const std::string& flags = "",
                            const DeepSpeedRun& run = {}) {
    return read_deepspeed_settings(Json::parse(config), "ds.json", parse_line(plain_run + flags).arguments,
                                   run);
}

std::string deepspeed_error(const std::string& config, const std::string& flags = "",
                            const DeepSpeedRun& run = {}) {
    return test::error_of<UsageError>([&] { deepspeed(config, flags, run); });
}

constexpr const char* all_auto = R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 12}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
        "total_num_steps": "auto", "warmup_type": "linear"}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}})";

TEST(DeepSpeed, AutoMeansTheCommandLine) {
    const DeepSpeedSettings settings = deepspeed(all_auto, "--bf16", {.world_size = 4, .total_steps = 100});
    EXPECT_EQ(settings.stage, 2);
    EXPECT_TRUE(settings.bf16);
    EXPECT_FALSE(settings.fp16);
    EXPECT_EQ(settings.initial_scale_power, 12);
    EXPECT_EQ(settings.optimizer, "adamw_torch");
    EXPECT_EQ(settings.schedule, "linear");
    EXPECT_EQ(settings.explanations.size(), 1u);  // reduce_bucket_size
    EXPECT_TRUE(deepspeed(all_auto, "--fp16").fp16);
}

TEST(DeepSpeed, OneErrorListsAllMismatches) {
    const std::string error = deepspeed_error(
        R"({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
            "optimizer": {"type": "AdamW", "params": {"lr": 1, "betas": [0.8, 0.9], "eps": 1, "weight_decay": 1}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1, "warmup_max_lr": 2, "warmup_num_steps": 3}},
            "bf16": {"enabled": true}})",
        "", {.world_size = 2});
    for (const char* key :
         {"train_batch_size is 9", "2 processes · batch 8 · accumulation 1 is 16",
          "train_micro_batch_size_per_gpu is 3, but --per_device_train_batch_size is 8",
          "gradient_accumulation_steps is 2", "gradient_clipping is 0.5, but --max_grad_norm is 1",
          "lr is 1, but --learning_rate is 5e-05", "betas is [0.8, 0.9]", "eps is 1", "weight_decay is 1",
          "warmup_min_lr is 1", "warmup_max_lr is 2", "warmup_num_steps is 3",
          "enabled is true, but --bf16 is no", "\"auto\""})
        EXPECT_MENTIONS(error, key);
}

TEST(DeepSpeed, WarmupIsComparedWhenItIsKnown) {
    const std::string config =
        R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "total_num_steps": 100}}})";
    EXPECT_NO_THROW(deepspeed(config, "--warmup_ratio 0.1"));
    EXPECT_NO_THROW(deepspeed(config, "--warmup_ratio 0.1", {.total_steps = 100}));
    EXPECT_NO_THROW(deepspeed(config, "--warmup_steps 10 --max_steps 100"));
    EXPECT_MENTIONS(deepspeed_error(config, "--warmup_ratio 0.1", {.total_steps = 200}),
                    "warmup_num_steps is 10, but --warmup_steps is 20");
    EXPECT_MENTIONS(deepspeed_error(config, "--warmup_steps 10 --max_steps 50"), "total_num_steps is 100");
    EXPECT_EQ(deepspeed(config, "--warmup_steps 10").schedule, "constant_with_warmup");
}

TEST(DeepSpeed, BlocksWithoutTheirNumbersUseTheCommandLines) {
    const DeepSpeedSettings settings =
        deepspeed(R"({"optimizer": {"type": "Adam"}, "activation_checkpointing": {}})");
    EXPECT_EQ(settings.optimizer, "adamw_torch");
    EXPECT_TRUE(settings.recompute);
    ASSERT_EQ(settings.explanations.size(), 2u);
    EXPECT_MENTIONS(settings.explanations[0], "DeepSpeed would not clip");
    EXPECT_MENTIONS(settings.explanations[1], "DeepSpeed would take 0.001");
}

TEST(DeepSpeed, BadConfigs) {
    EXPECT_MENTIONS(deepspeed_error(R"({"pipeline": {"stages": 2}})"), "use --pipeline_parallel_size");
    EXPECT_MENTIONS(deepspeed_error(R"({"tensor_parallel": {"autotp_size": 2}})"),
                    "use --tensor_parallel_size");
    EXPECT_MENTIONS(deepspeed_error(R"({"zero_optimisation": {}})"), "zero_optimization");
    EXPECT_MENTIONS(deepspeed_error(R"({"zero_optimization": {"stage": 4}})"), "stage is 4");
    EXPECT_MENTIONS(deepspeed_error(R"({"zero_optimization": {"stagee": 3}})"), "Did you mean stage?");
    EXPECT_MENTIONS(deepspeed_error(R"({"zero_optimization": 3})"), "zero_optimization is not a JSON object");
    EXPECT_MENTIONS(deepspeed_error(R"({"optimizer": {"type": "OneBitAdam"}})"), "AdamW or Adam");
    EXPECT_MENTIONS(deepspeed_error(R"({"optimizer": {}})"), "AdamW or Adam");
    EXPECT_MENTIONS(deepspeed_error(R"({"optimizer": {"type": "AdamW"}})", "--optim adafactor"),
                    "--optim is adafactor");
    EXPECT_MENTIONS(deepspeed_error(R"({"optimizer": {"type": "AdamW", "params": {"betas": [1]}}})"),
                    "two numbers");
    EXPECT_MENTIONS(deepspeed_error(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})"),
                    "adam_w_mode");
    EXPECT_MENTIONS(
        deepspeed_error(R"({"optimizer": {"type": "Adam", "params": {"bias_correction": false}}})"),
        "bias_correction");
    EXPECT_MENTIONS(deepspeed_error(R"({"scheduler": {"type": "OneCycle"}})"), "WarmupLR");
    EXPECT_MENTIONS(deepspeed_error(R"({"gradient_clipping": "lots"})"), "gradient_clipping is \"lots\"");
    EXPECT_MENTIONS(deepspeed_error(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"),
                    "fp16 and bf16");
    EXPECT_MENTIONS(deepspeed_error(R"({"curriculum_learning": {"enabled": true}})"), "curriculum_learning");
    EXPECT_MENTIONS(deepspeed_error("[1]"), "not a JSON object");
    EXPECT_MENTIONS(error_of_line(plain_run + "--fsdp full_shard --deepspeed {}"), "--deepspeed and --fsdp");
}

TEST(DeepSpeed, ChangesTheSettings) {
    const RunArguments run = parse_line(plain_run +
                                        "--deepspeed {\"scheduler\":{\"type\":\"WarmupCosineLR\"},"
                                        "\"optimizer\":{\"type\":\"AdamW\"},\"activation_checkpointing\":{},"
                                        "\"zero_optimization\":{\"stage\":1}}");
    EXPECT_EQ(run.deepspeed->stage, 1);
    EXPECT_EQ(run.arguments.text("lr_scheduler_type"), "cosine");
    EXPECT_EQ(run.arguments.source("lr_scheduler_type").text(), "DeepSpeed config");
    EXPECT_EQ(run.arguments.source("optim").text(), "DeepSpeed config");
    EXPECT_EQ(run.arguments.text("recompute"), "full");
}

TEST(DeepSpeed, OffloadOfTheOptimizerActs) {
    const auto offloads = [](const std::string& zero) {
        return deepspeed("{\"zero_optimization\": {\"stage\": 2, " + zero + "}}").offload_optimizer;
    };
    EXPECT_TRUE(offloads(R"("offload_optimizer": {"device": "cpu", "pin_memory": true})"));
    EXPECT_TRUE(offloads(R"("cpu_offload": true)"));
    EXPECT_TRUE(offloads(R"("offload_optimizer": {"device": "cpu"}, "cpu_offload": false)"));
    EXPECT_FALSE(offloads(R"("offload_optimizer": {"device": "none"})"));
    EXPECT_FALSE(offloads(R"("offload_param": {"device": "cpu"})"));
    EXPECT_MENTIONS(deepspeed_error(R"({"zero_optimization": {"offload_optimizer": {"device": "gpu"}}})"),
                    "device");
}

TEST(DeepSpeed, BfloatHasAMasterCopyWhateverTypeTheModelHas) {
    const auto master = [](const std::string& flags) {
        return parse_line(plain_run + flags).arguments.optional_flag("master_weights");
    };
    EXPECT_EQ(master("--bf16 --deepspeed {\"bf16\":{\"enabled\":true}}"), true);
    EXPECT_EQ(master("--bf16 --deepspeed {\"bf16\":{\"enabled\":\"auto\"}}"), true);
    EXPECT_EQ(master("--bf16 --master_weights no --deepspeed {\"bf16\":{\"enabled\":true}}"), false);
    EXPECT_EQ(
        master("--bf16 --deepspeed {\"bf16\":{\"enabled\":true,\"bf16_master_weights_and_grads\":true}}"),
        std::nullopt);
    EXPECT_EQ(master("--deepspeed {}"), std::nullopt);
    EXPECT_EQ(master("--deepspeed {\"bf16\":{\"enabled\":false,\"bf16_master_weights_and_grads\":false}}"),
              std::nullopt);
    EXPECT_EQ(master("--bf16 --stochastic_rounding --deepspeed {\"bf16\":{\"enabled\":true}}"), std::nullopt);
}

}  // namespace
}  // namespace drover
