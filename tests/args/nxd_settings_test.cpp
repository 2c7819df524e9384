#include "args/nxd_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "args/argument_value.h"
#include "args/help_text.h"
#include "args/parse_line.h"
#include "core/json.h"
#include "core/json_text.h"

namespace drover::nxd_settings_test {
namespace {

const std::string plain = "--training_config c --training_dir d --lr 1e-3 ";

Arguments parsed(const std::string& line, const Environment& environment = {}) {
    return parse_nxd_arguments(split_words(plain + line, ' '), {.environment = environment});
}
RunSettings settings_of(const std::string& line, const Environment& environment = {}) {
    return nxd_run_settings(parsed(line, environment));
}
std::string refusal_of(const std::string& line) {
    return test::error_of<UsageError>([&] { parsed(line); });
}

/// The flags of run_llama_nxd.py with their defaults; null: none. Attention is fused by default, as the
/// tutorial says (the script's default is 0).
TEST(NxdTable, HasEveryFlagWithItsDefault) {
    const Json defaults = parse_json(R"({
        "num_microbatches": 8, "tensor_parallel_size": 8, "pipeline_parallel_size": 1, "virtual_pipeline_size": 1,
        "context_parallel_size": 1, "num_layer": -1, "hidden_size": -1, "train_batch_size": 16, "kv_replicator": 1,
        "seq_len": 4096, "use_flash_attention": true, "transpose_nki_inputs": true, "training_dir": null,
        "training_config": null, "trace_file_path": null, "tb_dir": "output", "max_steps": 100,
        "checkpoint_freq": 100000, "checkpoint_dir": null, "loading_step": "-1", "num_kept_checkpoint": -1,
        "save_load_xser": true, "pretrained_weight": false, "async_checkpoint_saving": false,
        "use_master_weight_in_ckpt": false, "avoid_saving_lower_precision_weights": false,
        "use_gpu_compatible_precision": true, "metrics_file": "results.json", "fuse_microbatches": false,
        "deallocate_pipeline_outputs": true, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.95,
        "use_fp32_optimizer": false, "use_zero1_optimizer": false, "seed": 1234, "use_amp": false,
        "use_deferred_init": false, "use_meta_device_init": false, "use_selective_checkpoint": false,
        "use_sequence_parallel": true, "qkv_linear": false, "fuse_qkv": true, "lr": null, "min_lr": null,
        "warmup_steps": null, "constant_steps": null, "logging_interval": 1, "pretrained_weight_dir": null})",
                                     "the test");
    EXPECT_EQ(defaults.size(), 49u);  // 48 of the script, and one of its tutorial
    for (const auto& [name, value] : defaults.items()) {
        SCOPED_TRACE(name);
        const Argument* argument = run_llama_nxd_table().find(name);
        ASSERT_NE(argument, nullptr);
        EXPECT_EQ(default_value(*argument), value);
    }
}

TEST(NxdTable, RowsAreComplete) {
    for (const ArgumentGroup& group : run_llama_nxd_table().groups())
        for (const Argument& argument : group.arguments) {
            SCOPED_TRACE(argument.name);
            EXPECT_TRUE(argument.help.ends_with('.'));
            EXPECT_EQ(argument.note.empty(), argument.standing != Standing::explained);
            EXPECT_NO_THROW(default_value(argument));
        }
    EXPECT_MENTIONS(help_text(run_llama_nxd_table()), "--tensor_parallel_size integer (default: 8)");
}

TEST(NxdSettings, DefaultsAreTheScripts) {
    const RunSettings settings = settings_of("");
    EXPECT_TRUE(settings.do_train);
    EXPECT_EQ(settings.loop.per_device_train_batch_size, 2);
    EXPECT_EQ(settings.loop.gradient_accumulation_steps, 8);
    EXPECT_EQ(settings.loop.max_steps, 100);
    EXPECT_EQ(settings.loop.seed, 1234u);
    EXPECT_TRUE(settings.loop.output_dir.empty()) << "without --checkpoint_dir nothing is saved";
    EXPECT_EQ(settings.loop.lr_scheduler_type, "nxd_cosine");
    EXPECT_EQ(settings.mesh.tensor_parallel_size, 8);
    EXPECT_EQ(settings.mesh.sequence_parallel, true);
    EXPECT_EQ(settings.mesh.sharding, Sharding::replicated);
    EXPECT_EQ(settings.step.recompute.kind, Recompute::full);
    EXPECT_EQ(settings.step.max_grad_norm, 1);
    EXPECT_EQ(settings.optimizer.adamw.beta2, 0.95);
    EXPECT_EQ(settings.optimizer.adamw.eps, 1e-8);
    EXPECT_EQ(settings.precision.weights, DType::f32);
    EXPECT_FALSE(settings.data.block_size) << "the rows' own length";
    EXPECT_EQ(settings.model.least_positions, 4096);
    EXPECT_EQ(settings.logs.tensor_board_folder, std::filesystem::path("output"));
    EXPECT_EQ(settings.logs.metrics_file, std::filesystem::path("results.json"));
    EXPECT_FALSE(settings.device.plain_attention);
}

TEST(NxdSettings, FlagsAct) {
    EXPECT_EQ(settings_of("--use_selective_checkpoint 1").step.recompute.kind, Recompute::selective);
    EXPECT_EQ(settings_of("--use_selective_checkpoint 1 --seq_len 8192").step.recompute.kind,
              Recompute::selective_mlp);
    EXPECT_EQ(settings_of("--seq_len 8192").data.block_size, 8192);
    EXPECT_EQ(settings_of("--use_zero1_optimizer 1").mesh.sharding, Sharding::zero1);
    EXPECT_EQ(settings_of("--kv_replicator 4 --qkv_linear 1").mesh.key_value_copies, 4);
    EXPECT_EQ(settings_of("--use_sequence_parallel 0").mesh.sequence_parallel, false);
    EXPECT_FALSE(settings_of("--tensor_parallel_size 1").mesh.sequence_parallel);
    EXPECT_TRUE(settings_of("--use_flash_attention 0").device.plain_attention);
    EXPECT_TRUE(settings_of("--use_amp 1").precision.bf16);
    EXPECT_EQ(settings_of("--pretrained_weight_dir w").model.model_name_or_path, "w");
    const RunSettings tag = settings_of("--checkpoint_dir k --pretrained_weight 1");
    EXPECT_EQ(tag.model.model_name_or_path, "k/pretrained_weight");
    const OptimizerSettings fp32 = settings_of("--use_fp32_optimizer 1 --weight_decay 0.1").optimizer;
    EXPECT_EQ(fp32.adamw.eps, 1e-6);
    EXPECT_EQ(fp32.adamw.form, AdamWForm::transformers);
    EXPECT_EQ(fp32.adamw.weight_decay, 0.1);
    EXPECT_EQ(settings_of("--use_fp32_optimizer 1").precision.moments, DType::f32);
    const RunSettings rates = settings_of("--min_lr 1e-4 --warmup_steps 7 --constant_steps 3");
    EXPECT_EQ(rates.loop.warmup_steps, 7);
    EXPECT_EQ(rates.loop.lr_scheduler_kwargs, (Json{{"min_lr", 1e-4}, {"constant_steps", 3}}));
    EXPECT_EQ(settings_of("--trace_file_path t.json").profile.pipeline_file, std::filesystem::path("t.json"));
    EXPECT_TRUE(test::has_line(parsed("--weight_decay 0.1"), "run_llama_nxd.py takes 0.01"));
    EXPECT_TRUE(test::has_line(parsed("--use_flash_attention 0"), "slower"));
    EXPECT_TRUE(test::has_line(parsed("--transpose_nki_inputs 1"), "--transpose_nki_inputs"));
}

/// The words of run_llama3_70B_tp_pp.sh, with its variables exported.
TEST(NxdSettings, TheScriptsCommandLineIsTakenAsItIs) {
    const std::string line =
        "--metrics_file results.json --train_batch_size 256 --use_meta_device_init 1 --training_dir "
        "/home/u/examples_datasets/wikicorpus_llama3_tokenized_8k --training_config 70B_config_llama3 "
        "--max_steps "
        "30000 --seq_len 8192 --pipeline_parallel_size 8 --tensor_parallel_size 32 --num_microbatches 256 "
        "--lr "
        "0.000015 --min_lr 1e-06 --beta1 0.9 --beta2 0.95 --weight_decay 0.1 --warmup_steps 2000 "
        "--constant_steps 0 --use_zero1_optimizer 1 --use_selective_checkpoint 1 --use_flash_attention 1 "
        "--qkv_linear 1 --kv_replicator 4 --pretrained_weight 0 --save_load_xser 1 --checkpoint_dir "
        "/shared/llama3_70B/ --checkpoint_freq 30000 --num_kept_checkpoint -1 --loading_step -1 --tb_dir tb";
    const Arguments arguments =
        parse_nxd_arguments(split_words(line, ' '), {.environment = {{"XLA_DOWNCAST_BF16", "1"},
                                                                     {"NEURON_FUSE_SOFTMAX", "1"},
                                                                     {"NEURON_CC_FLAGS", "--cache_dir=c"},
                                                                     {"XLA_DISABLE_FUNCTIONALIZATION", "0"},
                                                                     {"MALLOC_ARENA_MAX", "128"}}});
    const RunSettings settings = nxd_run_settings(arguments);
    EXPECT_EQ(settings.loop.per_device_train_batch_size, 1);
    EXPECT_EQ(settings.loop.gradient_accumulation_steps, 256);
    EXPECT_EQ(settings.mesh.tensor_parallel_size, 32);
    EXPECT_EQ(settings.mesh.pipeline_parallel_size, 8);
    EXPECT_EQ(settings.mesh.key_value_copies, 4);
    EXPECT_EQ(settings.step.recompute.kind, Recompute::selective_mlp);
    EXPECT_EQ(settings.precision.weights, DType::bf16);
    EXPECT_EQ(settings.precision.master_weights, true);
    EXPECT_EQ(settings.checkpoints.resume.from, ResumeSettings::From::nowhere_unchecked);
    EXPECT_TRUE(settings.model.model_name_or_path.empty());
    for (const std::string& said : arguments.explanations())
        EXPECT_EQ(said.find('\n'), std::string::npos) << "one line each";
    for (const char* name :
         {"--use_meta_device_init", "--qkv_linear", "--save_load_xser", "--weight_decay",
          "NEURON_FUSE_SOFTMAX", "NEURON_CC_FLAGS", "XLA_DISABLE_FUNCTIONALIZATION", "MALLOC_ARENA_MAX"})
        EXPECT_TRUE(test::has_line(arguments, name)) << name;
}

TEST(NxdSettings, CheckpointsByItsFlags) {
    using From = ResumeSettings::From;
    const RunSettings settings =
        settings_of("--checkpoint_dir k --checkpoint_freq 5 --num_kept_checkpoint 2");
    EXPECT_EQ(settings.loop.output_dir, std::filesystem::path("k"));
    EXPECT_EQ(settings.loop.checkpoint_prefix, "step_");
    EXPECT_EQ(settings.loop.save_strategy, IntervalStrategy::steps);
    EXPECT_EQ(settings.loop.save_steps, 5);
    EXPECT_EQ(settings.loop.save_total_limit, 2);
    EXPECT_TRUE(settings.loop.waits_for_checkpoints);
    EXPECT_EQ(settings.checkpoints.resume.from, From::nowhere_unchecked);
    EXPECT_FALSE(settings.checkpoints.save_final_model);
    EXPECT_FALSE(settings_of("--checkpoint_dir k --async_checkpoint_saving 1").loop.waits_for_checkpoints);
    const ResumeSettings numbered = settings_of("--checkpoint_dir k --loading_step 40").checkpoints.resume;
    EXPECT_EQ(numbered.from, From::step);
    EXPECT_EQ(numbered.step, 40);
    const std::string newest = "--checkpoint_dir k --loading_step latest_if_exists";
    EXPECT_EQ(settings_of(newest).checkpoints.resume.from, From::newest_if_any);
    EXPECT_EQ(settings_of("--checkpoint_dir k --checkpoint_freq -1").loop.save_strategy,
              IntervalStrategy::no);
    EXPECT_EQ(settings_of("--checkpoint_dir k --num_kept_checkpoint -1").loop.save_total_limit, 0);
}

TEST(NxdSettings, ResumeComparesOrExcusesEverySetting) {
    const std::set<std::string_view> excused{
        // the config is compared itself
        "training_config", "num_layer", "hidden_size",
        // layouts and recomputing change rounding at most
        "use_flash_attention", "use_selective_checkpoint", "tensor_parallel_size", "pipeline_parallel_size",
        "virtual_pipeline_size", "context_parallel_size", "use_sequence_parallel", "use_zero1_optimizer",
        "kv_replicator", "pipeline_schedule", "pipeline_cuts", "device", "threads", "memory_fraction",
        // only a new run draws or loads weights
        "init", "pretrained_weight", "pretrained_weight_dir",
        // records, messages and files
        "checkpoint_dir", "checkpoint_freq", "loading_step", "num_kept_checkpoint", "async_checkpoint_saving",
        "checkpoint_format", "qkv_linear", "fuse_qkv", "save_load_xser", "steal_lock", "save_buffer_gb",
        "logging_interval", "tb_dir", "metrics_file", "trace_file_path", "dry_run", "precompile", "log_level",
        "log_level_replica", "log_on_each_node", "rank_log_dir", "spmd_debug", "ddp_timeout", "comm_debug",
        "comm_stats", "profile", "profile_steps", "profile_epoch", "profile_step", "profile_duration_ms",
        "profile_logdir", "help", "help_markdown", "verbose"};
    const auto compared = nxd_arguments_compared_on_resume();
    for (const ArgumentGroup& group : run_llama_nxd_table().groups())
        for (const Argument& argument : group.arguments)
            if (argument.standing != Standing::explained) {
                const bool is_compared = std::ranges::find(compared, argument.name) != compared.end();
                EXPECT_NE(is_compared, excused.contains(argument.name)) << argument.name;
            }
}

TEST(NxdSettings, VariablesAct) {
    const RunSettings bf16 = settings_of("", {{"XLA_DOWNCAST_BF16", "1"}});
    EXPECT_EQ(bf16.precision.weights, DType::bf16);
    EXPECT_EQ(bf16.precision.master_weights, true);
    EXPECT_FALSE(bf16.precision.stochastic_rounding);
    const RunSettings rounded =
        settings_of("", {{"XLA_DOWNCAST_BF16", "1"}, {"NEURON_RT_STOCHASTIC_ROUNDING_EN", "1"}});
    EXPECT_EQ(rounded.precision.master_weights, false);
    EXPECT_TRUE(rounded.precision.stochastic_rounding);
    const RunSettings by_flag = settings_of("--use_gpu_compatible_precision 0", {{"XLA_DOWNCAST_BF16", "1"}});
    EXPECT_TRUE(by_flag.precision.stochastic_rounding);

    const std::string saving = "--max_steps 30 --checkpoint_dir k --checkpoint_freq 5 --loading_step 5";
    const RunSettings trial = settings_of(saving, {{"NEURON_EXTRACT_GRAPHS_ONLY", "1"}});
    EXPECT_EQ(trial.loop.max_steps, 10);
    EXPECT_EQ(trial.loop.save_strategy, IntervalStrategy::no);
    EXPECT_TRUE(trial.loop.output_dir.empty());
    EXPECT_TRUE(trial.logs.metrics_file.empty());

    const Arguments said = parsed("", {{"FI_PROVIDER", "efa"}, {"FI_EFA_FORK_SAFE", "1"}, {"GBS", "8"}});
    EXPECT_TRUE(test::has_line(said, "FI_*"));
    EXPECT_EQ(said.explanations().size(), 1u) << "once for the family; scripts read GBS";
}

TEST(NxdSettings, RefusesWhatContradictsItself) {
    EXPECT_MENTIONS(refusal_of("--num_microbatches 3"), "cannot be cut into 3 micro-batches");
    EXPECT_MENTIONS(refusal_of("--min_lr 1"), "--min_lr 1 is above --lr");
    EXPECT_MENTIONS(refusal_of("--loading_step newest"), "names no checkpoint");
    EXPECT_MENTIONS(refusal_of("--loading_step 3"), "--loading_step 3 needs --checkpoint_dir");
    EXPECT_MENTIONS(refusal_of("--checkpoint_freq 10"), "--checkpoint_freq 10 needs --checkpoint_dir");
    EXPECT_MENTIONS(refusal_of("--pretrained_weight 1"), "needs --checkpoint_dir");
    EXPECT_MENTIONS(refusal_of("--checkpoint_dir k --pretrained_weight 1 --pretrained_weight_dir w"), "both");
    EXPECT_MENTIONS(refusal_of("--kv_replicator 3"), "does not divide --tensor_parallel_size 8");
    EXPECT_MENTIONS(refusal_of("--context_parallel_size 2"), "not available yet");
    EXPECT_MENTIONS(refusal_of("--virtual_pipeline_size 2"), "there is no pipeline");
    EXPECT_MENTIONS(refusal_of("--num_layer 0"), "--num_layer is 0");
    EXPECT_MENTIONS(refusal_of("--seed 0"), "--seed");
    EXPECT_MENTIONS(refusal_of("--learning_rate 1"), "There is no flag --learning_rate");
    const auto without = [](const std::string& line) {
        return test::error_of<UsageError>([&] { parse_nxd_arguments(split_words(line, ' ')); });
    };
    EXPECT_MENTIONS(without("--training_config c --training_dir d"), "--lr is not given");
    EXPECT_MENTIONS(without("--training_config c --lr 1"), "--training_dir is not given");
    EXPECT_MENTIONS(without("--training_dir d --lr 1"), "--training_config is not given");
}

}  // namespace
}  // namespace drover::nxd_settings_test
