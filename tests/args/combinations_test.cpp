#include <filesystem>
#include <fstream>

#include "args/parse_line.h"

namespace drover {
namespace {

using test::error_of_line;
using test::has_line;
using test::parse_line;
using test::plain_run;

struct Refused {
    const char *flags, *mentions;
};

TEST(Combinations, AreRefusedWithASentence) {
    for (const Refused& refused : {
             Refused{"--spmd_2d_sharding 2 --fsdp full_shard", "--spmd_2d_sharding and --fsdp"},
             Refused{"--spmd_2d_sharding 2 --spmd_fsdp_sharding",
                     "--spmd_2d_sharding and --spmd_fsdp_sharding"},
             Refused{"--spmd_2d_sharding 2 --tensor_parallel_size 4", "one axis two sizes"},
             Refused{"--tensor_parallel_size 8 --kv_replicator 3", "does not divide"},
             Refused{"--gmm --static", "--gmm and --static exclude each other"},
             Refused{"--gmm_stack --static", "--gmm_stack and --static exclude each other"},
             Refused{"--bf16 --fp16", "--bf16 and --fp16"},
             Refused{"--bf16_full_eval --fp16_full_eval", "--bf16_full_eval and --fp16_full_eval"},
             Refused{"--logging_steps 0", "--logging_steps is 0"},
             Refused{"--logging_steps 2.5", "--logging_steps is 2.5"},
             Refused{"--save_steps 1.5", "--save_steps is 1.5"},
             Refused{"--eval_strategy steps --eval_steps 1.5", "--eval_steps is 1.5"},
             Refused{"--eval_strategy steps --logging_strategy no --logging_steps 0", "--eval_steps"},
             Refused{"--load_best_model_at_end", "--eval_strategy is no and --save_strategy is steps"},
             Refused{"--load_best_model_at_end --eval_strategy epoch", "--eval_strategy is epoch"},
             Refused{"--load_best_model_at_end --eval_strategy steps --eval_steps 200",
                     "they are 500 and 200"},
             Refused{"--load_best_model_at_end --eval_strategy steps --eval_steps 0.1",
                     "a share and a number"},
             Refused{"--load_best_model_at_end --eval_strategy steps --eval_steps 0.3 --save_steps 0.4",
                     "0.4 and 0.3"},
             Refused{"--save_strategy best", "nothing is evaluated"},
             Refused{"--lr_scheduler_type reduce_lr_on_plateau", "needs evaluations"},
             Refused{"--lr_scheduler_type greedy", "greedy"},
             Refused{"--lr_scheduler_type cosin", "the nearest is cosine"},
             Refused{"--optim lion_8bit", "lion_8bit"},
             Refused{"--optim adam", "--optim is \"adam\""},
             Refused{"--adafactor --optim sgd", "two optimizers"},
             Refused{"--optim_args beta", "\"beta\""},
             Refused{"--config_overrides n_layer=2", "--config_overrides"},
             Refused{"--streaming", "--max_steps"},
             Refused{"--pad_token eos", "--packing none"},
             Refused{"--dataloader_prefetch_factor 2", "--dataloader_num_workers is 0"},
             Refused{"--use_cpu --device cuda", "--use_cpu"},
             Refused{"--gradient_checkpointing --recompute none", "contradict"},
             Refused{"--train_batch_size 10 --num_microbatches 4", "cannot be cut"},
             Refused{"--report_to wandbx", "\"wandbx\""},
             Refused{"--accelerator_config {\"split_batch\":true}", "split_batches"},
             Refused{"--accelerator_config {\"gradient_accumulation_kwargs\":{\"num_steps\":2}}",
                     "num_steps"},
             Refused{"--warmup_steps -1", "--warmup_steps is -1"},
             Refused{"--load_in_4bit", "weights in 4 bits"},
             Refused{"--load_in_8bit", "weights in 8 bits"},
             Refused{"--peft_lora --use_peft no", "--peft_lora and --use_peft no contradict"},
             Refused{"--adapter_name_or_path a --no_use_peft", "contradict each other"},
             Refused{"--use_peft --lora_task_type SEQ_CLS", "--lora_task_type is SEQ_CLS"},
             Refused{"--use_peft --lora_dropout 1", "--lora_dropout is 1"},
             Refused{"--use_peft --bf16 --moments_dtype bfloat16",
                     "--moments_dtype is given with --use_peft"},
             Refused{"--use_peft --bf16 --master_weights no", "always trained in float32"},
             Refused{"--use_peft --num_layer 1", "--num_layer makes another model"},
             Refused{"--adapter_name_or_path a --peft_lora", "Keep one of them"},
             Refused{"--adapter_name_or_path a --lora_r 4 --use_dora",
                     "--lora_r, --use_dora describe new adapters"},
             Refused{"--num_layer 0", "--num_layer is 0"},
             Refused{"--hidden_size -2", "--hidden_size is -2"},
             Refused{"--recompute_blocks 2", "nothing is recomputed"},
             Refused{"--recompute full --recompute_blocks 0", "--recompute_blocks is 0"},
             Refused{"--tb_dir a --logging_dir b", "two folders"},
             Refused{"--num_microbatches 4 --gradient_accumulation_steps 2",
                     "--gradient_accumulation_steps is 2, but --num_microbatches 4 makes it 4"},
             Refused{"--num_microbatches 1 --gradient_accumulation_steps 2",
                     "--num_microbatches 1 makes it 1"},
             Refused{"--train_batch_size 8 --per_device_train_batch_size 4",
                     "--per_device_train_batch_size is 4, but --train_batch_size 8 makes it 8"},
             Refused{"--train_batch_size 8 --num_microbatches 4 --per_device_train_batch_size 4",
                     "--train_batch_size 8 in 4 micro-batches makes it 2"},
             Refused{"--virtual_pipeline_size 2",
                     "--virtual_pipeline_size is given, but there is no pipeline"},
             Refused{"--pipeline_schedule zero_bubble",
                     "--pipeline_schedule is given, but there is no pipeline"},
             Refused{"--pipeline_cuts balanced", "--pipeline_cuts is given, but there is no pipeline"},
             Refused{"--pipeline_parallel_size 2 --pipeline_schedule interleaved",
                     "--pipeline_schedule interleaved needs several stages per process, but "
                     "--virtual_pipeline_size is 1"},
             Refused{"--pipeline_parallel_size 2 --pipeline_schedule 1f1b --virtual_pipeline_size 2",
                     "--pipeline_schedule 1f1b has one stage per process, but --virtual_pipeline_size is 2"},
             Refused{"--pipeline_parallel_size 2 --pipeline_schedule gpipe", "--pipeline_schedule"},
             Refused{"--pipeline_parallel_size 2 --pipeline_cuts 3,x", "has \"x\""},
             Refused{"--pipeline_parallel_size 2 --pipeline_cuts -3", "has \"-3\""},
             Refused{"--pipeline_parallel_size 2 --pipeline_cuts 99999999999", "has \"99999999999\""},
             Refused{"--pipeline_parallel_size 2 --pipeline_cuts ,", "--pipeline_cuts is empty"},
         })
        EXPECT_MENTIONS(error_of_line(plain_run + refused.flags), refused.mentions) << refused.flags;
}

TEST(Combinations, ModelAndDataMustBeNamed) {
    EXPECT_MENTIONS(error_of_line("--do_eval --config_name c"), "--do_eval is given, but there is no data");
    EXPECT_MENTIONS(error_of_line("--do_train --config_name c --validation_file v.txt"), "no training data");
    EXPECT_MENTIONS(error_of_line("--do_train --train_file a.txt"), "No model is named");
    EXPECT_MENTIONS(error_of_line("--do_train --train_file a.txt --model_type llama --config_overrides x"),
                    "\"x\"");
    EXPECT_NO_THROW(parse_line("--do_eval --model_name_or_path m --validation_file v.txt"));
    EXPECT_NO_THROW(
        parse_line("--do_train --train_file a.txt --model_type llama --config_overrides hidden_size=8"));
}

TEST(Combinations, ThatAreFine) {
    for (const char* flags :
         {"--load_best_model_at_end --eval_strategy steps --eval_steps 250",
          "--load_best_model_at_end --eval_strategy steps --eval_steps 0.1 --save_steps 0.3",
          "--load_best_model_at_end --eval_strategy epoch --save_strategy epoch",
          "--load_best_model_at_end --eval_strategy steps --save_strategy best", "--streaming --max_steps 5",
          "--packing none --pad_token unk", "--gmm", "--logging_strategy no --logging_steps 0",
          "--spmd_2d_sharding 4 --tensor_parallel_size 4",
          "--dataloader_num_workers 2 --dataloader_prefetch_factor 2", "--optim_args lr=1,eps=2"})
        EXPECT_NO_THROW(parse_line(plain_run + flags)) << flags;
}

TEST(Implications, AsTransformersFillsThemIn) {
    const Arguments steps = parse_line(plain_run + "--eval_strategy steps --logging_steps 20").arguments;
    EXPECT_TRUE(steps.flag("do_eval"));
    EXPECT_EQ(steps.number("eval_steps"), 20);
    EXPECT_EQ(steps.source("eval_steps").text(), "implied by --logging_steps");
    EXPECT_FALSE(steps.has("metric_for_best_model"));

    const Arguments best =
        parse_line(plain_run + "--load_best_model_at_end --eval_strategy epoch --save_strategy epoch")
            .arguments;
    EXPECT_EQ(best.text("metric_for_best_model"), "loss");
    EXPECT_EQ(best.optional_flag("greater_is_better"), false);
    EXPECT_EQ(parse_line(plain_run + "--metric_for_best_model accuracy")
                  .arguments.optional_flag("greater_is_better"),
              true);

    EXPECT_EQ(parse_line(plain_run + "--adafactor").arguments.text("optim"), "adafactor");
    EXPECT_EQ(parse_line(plain_run + "--no_cuda").arguments.text("device"), "cpu");
    EXPECT_EQ(parse_line(plain_run + "--group_by_length").arguments.text("train_sampling_strategy"),
              "group_by_length");
    EXPECT_EQ(
        parse_line(plain_run + "--gradient_checkpointing --recompute selective").arguments.text("recompute"),
        "selective");
    const std::vector<std::string> none{"none"};
    EXPECT_EQ(parse_line(plain_run + "--report_to all wandb").arguments.words("report_to"),
              std::vector<std::string>{"tensorboard"});
    EXPECT_EQ(parse_line(plain_run + "--report_to wandb").arguments.words("report_to"), none);
    EXPECT_EQ(parse_line(plain_run + "--report_to none").arguments.words("report_to"), none);
    EXPECT_EQ(parse_line(plain_run + "--report_to wandb").arguments.settings_text(false).find("report_to"),
              std::string::npos);
}

TEST(Implications, SayWhichOfTwoSettingsCounts) {
    const auto says = [](const std::string& flags, const std::string& part) {
        return has_line(parse_line(plain_run + flags).arguments, part);
    };
    EXPECT_TRUE(says("--max_steps 5 --num_train_epochs 2", "--num_train_epochs is ignored"));
    EXPECT_TRUE(says("--warmup_steps 5 --warmup_ratio 0.1", "--warmup_ratio is ignored"));
    EXPECT_TRUE(says("--lr_scheduler_type constant --warmup_steps 5", "has no warm-up"));
    EXPECT_TRUE(says("--save_strategy no --save_steps 5", "--save_steps is used only"));
    EXPECT_TRUE(says("--streaming --max_steps 5 --overwrite_cache", "--overwrite_cache"));
    EXPECT_TRUE(says("--logging_dir board", "--report_to tensorboard"));
    EXPECT_FALSE(says("--max_steps 5 --save_steps 5 --warmup_ratio 0.1", "count"));
    EXPECT_TRUE(says("--gradient_checkpointing --recompute selective",
                     "--recompute selective is given, so --gradient_checkpointing is ignored."));
    EXPECT_FALSE(says("--gradient_checkpointing --recompute full", "is ignored"));
    // As in run_clm.py, a dataset by name takes precedence over files.
    EXPECT_TRUE(says("--dataset_name d", "--train_file is not used, because --dataset_name is given."));
    EXPECT_TRUE(says("--dataset_name d --validation_file v.txt", "--validation_file is not used"));
    EXPECT_TRUE(says("--dataset_config_name c", "--dataset_config_name is not used"));
    EXPECT_FALSE(says("--validation_file v.txt", "is not used"));
    EXPECT_TRUE(says("--profile_logdir t", "--profile_logdir: nothing is profiled without --profile."));
    EXPECT_TRUE(says("--profile_duration_ms 5", "--profile_duration_ms: nothing is profiled"));
    EXPECT_TRUE(says("--no_profile --profile_steps 2", "nothing is profiled because of --no_profile."));
    EXPECT_FALSE(says("--profile --profile_logdir t", "nothing is profiled"));
}

TEST(Implications, NamesOfTheTensorParallelScript) {
    const Arguments arguments =
        parse_line(plain_run +
                   "--train_batch_size 16 --num_microbatches 4 --checkpoint_freq 10 --checkpoint_dir out "
                   "--num_kept_checkpoint 2 --min_lr 1e-6 --use_selective_checkpoint 0 "
                   "--use_gpu_compatible_precision 0")
            .arguments;
    EXPECT_EQ(arguments.integer("per_device_train_batch_size"), 4);
    EXPECT_EQ(arguments.integer("gradient_accumulation_steps"), 4);
    EXPECT_EQ(arguments.number("save_steps"), 10);
    EXPECT_EQ(arguments.text("output_dir"), "out");
    EXPECT_EQ(arguments.optional_integer("save_total_limit"), 2);
    EXPECT_EQ(arguments.json("lr_scheduler_kwargs").at("min_lr"), 1e-6);
    EXPECT_EQ(arguments.text("recompute"), "full");
    EXPECT_EQ(arguments.optional_flag("master_weights"), false);
    EXPECT_TRUE(arguments.flag("stochastic_rounding"));
}

TEST(Implications, MicroBatchesWithoutABatch) {
    const Arguments alone = parse_line(plain_run + "--num_microbatches 4").arguments;
    EXPECT_EQ(alone.integer("gradient_accumulation_steps"), 4);
    EXPECT_FALSE(alone.given("per_device_train_batch_size"));
    const Arguments agree =
        parse_line(plain_run +
                   "--train_batch_size 8 --num_microbatches 2 --per_device_train_batch_size 4 "
                   "--gradient_accumulation_steps 2")
            .arguments;
    EXPECT_EQ(agree.integer("per_device_train_batch_size"), 4);
    const Arguments several =
        parse_line(plain_run + "--train_batch_size 8 --gradient_accumulation_steps 2").arguments;
    EXPECT_EQ(several.integer("per_device_train_batch_size"), 8);
    EXPECT_EQ(several.integer("gradient_accumulation_steps"), 2);
}

/// training_args.json has the default of --num_microbatches beside the accumulation that was given.
TEST(Implications, SavedArgumentsCanBeGivenAgain) {
    for (const char* flags :
         {"--gradient_accumulation_steps 4", "--train_batch_size 8 --num_microbatches 4"}) {
        const Arguments first = parse_line(plain_run + flags).arguments;
        const std::filesystem::path file =
            std::filesystem::path(::testing::TempDir()) / "saved_training_args.json";
        std::ofstream(file) << first.to_json();
        const Arguments again = parse_line(file.string()).arguments;
        EXPECT_EQ(again.integer("gradient_accumulation_steps"), 4) << flags;
        EXPECT_EQ(again.to_json(), first.to_json()) << flags;
    }
}

TEST(Implications, AFolderForTensorBoardAsksForItsFile) {
    const auto with = [](const std::string& flags) { return parse_line(plain_run + flags).arguments; };
    const Arguments alone = with("--tb_dir board");
    EXPECT_EQ(alone.words("report_to"), std::vector<std::string>{"tensorboard"});
    EXPECT_EQ(alone.text("logging_dir"), "board");
    EXPECT_TRUE(alone.explanations().empty());
    const Arguments beside_variable =
        parse_line(plain_run + "--tb_dir board", {.environment = {{"TENSORBOARD_LOGGING_DIR", "other"}}})
            .arguments;
    EXPECT_EQ(beside_variable.text("logging_dir"), "board");
    EXPECT_EQ(beside_variable.source("logging_dir").text(), "implied by --tb_dir");
    const Arguments without = with("--tb_dir board --report_to none");
    EXPECT_EQ(without.words("report_to"), std::vector<std::string>{"none"});
    EXPECT_TRUE(has_line(without, "nothing is written there"));
}

TEST(Implications, RecomputeOfTheFirstBlocksGoesWithEveryNameOfIt) {
    for (const char* flags :
         {"--recompute selective --recompute_blocks 3", "--gradient_checkpointing --gc_cnt 3",
          "--use_selective_checkpoint 1 --recompute-blocks 3"})
        EXPECT_EQ(parse_line(plain_run + flags).arguments.optional_integer("recompute_blocks"), 3) << flags;
}

TEST(Implications, OfAdapters) {
    const Arguments plain = parse_line(plain_run + "--peft_lora no").arguments;
    EXPECT_FALSE(plain.flag("use_peft"));
    const Arguments short_form = parse_line(plain_run + "--peft_lora --lora_alpha 4").arguments;
    EXPECT_TRUE(short_form.flag("use_peft"));
    EXPECT_EQ(short_form.integer("lora_r"), 8);
    EXPECT_EQ(short_form.integer("lora_alpha"), 4);
    EXPECT_EQ(short_form.number("lora_dropout"), 0);
    EXPECT_TRUE(parse_line(plain_run + "--adapter_name_or_path a").arguments.flag("use_peft"));
    // A saved file of arguments gives every flag, most at their defaults.
    EXPECT_NO_THROW(parse_line(plain_run + "--adapter_name_or_path a --lora_r 16 --no_use_dora"));
    EXPECT_TRUE(has_line(parse_line(plain_run + "--lora_r 4 --use_rslora").arguments,
                         "--lora_r, --use_rslora: without --use_peft they have no effect"));
    EXPECT_FALSE(has_line(parse_line(plain_run + "--lora_r 16").arguments, "without --use_peft"));
}

TEST(GlobalBatch, OnlyWithTheSingleProgramView) {
    EXPECT_FALSE(parse_line(plain_run).batch_is_global);
    EXPECT_FALSE(parse_line(plain_run + "--fsdp full_shard --fsdp_config {\"xla\":true}").batch_is_global);
    EXPECT_TRUE(parse_line(plain_run + "--fsdp full_shard --fsdp_config {\"xla\":true,\"xla_fsdp_v2\":true}")
                    .batch_is_global);
    EXPECT_TRUE(parse_line(plain_run + "--spmd_2d_sharding 1").batch_is_global);
    EXPECT_TRUE(parse_line(plain_run + "--spmd_fsdp_sharding").batch_is_global);
    EXPECT_TRUE(parse_line(plain_run + "--spmd_dcn_parallelism 2").batch_is_global);
    EXPECT_FALSE(parse_line(plain_run + "--fsdp hybrid_shard --spmd_dcn_parallelism 2").batch_is_global);
    EXPECT_TRUE(parse_line(plain_run, {.environment = {{"XLA_USE_SPMD", "1"}}}).batch_is_global);
    EXPECT_FALSE(parse_line(plain_run, {.environment = {{"XLA_USE_SPMD", "0"}}}).batch_is_global);
    EXPECT_TRUE(parse_line(plain_run + "--accelerator_config {\"split_batches\":true}").batch_is_global);
    EXPECT_TRUE(parse_line(plain_run + "--split_batches yes").batch_is_global);
}

TEST(EnvironmentVariables, AreReadFromTheProcess) {
    setenv("WANDB_DROVER_TEST", "x", 1);
    setenv("PROFILE_STEP", "3", 1);
    setenv("DROVER_TEST_UNRELATED", "1", 1);
    const Environment environment = read_environment();
    for (const char* name : {"WANDB_DROVER_TEST", "PROFILE_STEP", "DROVER_TEST_UNRELATED"}) unsetenv(name);
    EXPECT_EQ(environment.at("WANDB_DROVER_TEST"), "x");
    EXPECT_EQ(environment.at("PROFILE_STEP"), "3");
    EXPECT_FALSE(environment.contains("DROVER_TEST_UNRELATED"));
}

TEST(EnvironmentVariables, SetWhatTheCommandLineDoesNot) {
    const auto with = [](Environment environment, const std::string& more = "") {
        return parse_line(plain_run + more, {.environment = std::move(environment)}).arguments;
    };
    EXPECT_EQ(with({{"XLA_USE_BF16", "1"}}).text("dtype"), "bfloat16");
    EXPECT_EQ(with({{"XLA_USE_BF16", "1"}}, "--torch_dtype float32").text("dtype"), "float32");
    EXPECT_FALSE(with({{"XLA_USE_BF16", "0"}}).has("dtype"));
    EXPECT_EQ(with({{"PJRT_DEVICE", "CPU"}}).text("device"), "cpu");
    EXPECT_EQ(with({{"PJRT_DEVICE", "GPU"}}).text("device"), "cuda");
    EXPECT_EQ(with({{"PJRT_DEVICE", ""}}).text("device"), "auto");
    EXPECT_TRUE(with({{"NEURON_EXTRACT_GRAPHS_ONLY", "1"}}).flag("dry_run"));
    EXPECT_EQ(with({{"PROFILE_DURATION_MS", "5"}}).integer("profile_duration_ms"), 5);
    const Arguments wandb = with({{"WANDB_API_KEY", "x"}, {"WANDB_PROJECT", "y"}});
    EXPECT_EQ(wandb.explanations().size(), 1u);
    EXPECT_TRUE(has_line(wandb, "WANDB_*"));
    // Variables without an effect are explained and set nothing.
    for (const char* name : {"XLA_IR_DEBUG", "XLA_HLO_DEBUG", "XLA_PERSISTENT_CACHE_PATH"}) {
        const Arguments arguments = with({{name, "1"}});
        EXPECT_EQ(arguments.explanations().size(), 1u) << name;
        EXPECT_TRUE(has_line(arguments, std::string(name) + ": ")) << name;
        EXPECT_EQ(arguments.to_json(), with({}).to_json()) << name;
    }
    EXPECT_MENTIONS(error_of_line(plain_run, {.environment = {{"PJRT_DEVICE", "ABACUS"}}}),
                    "environment variable PJRT_DEVICE is \"abacus\"");
    EXPECT_MENTIONS(error_of_line(plain_run, {.environment = {{"PJRT_ALLOCATOR_FRACTION", "97"}}}),
                    "from 0 to 1");
    EXPECT_MENTIONS(error_of_line(plain_run, {.environment = {{"XLA_USE_BF16", "maybe"}}}),
                    "neither 0 nor 1");
}

}  // namespace
}  // namespace drover
