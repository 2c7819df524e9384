#include "app/mesh_runs.h"

namespace drover {
namespace {

using test::count_of;

/// A way to distribute a run over processes, as a user requests it.
struct Mode {
    std::string name;
    int processes;
    int replicas;
    std::string flags;
    bool batch_is_global = false;
    std::string config = "llama";
    std::string of_both{};  ///< flags that one process gets, too
};

std::string deepspeed(int stage) {
    return fmt::format(
        "--deepspeed '{{\"zero_optimization\": {{\"stage\": {}}}, \"train_batch_size\": 8, "
        "\"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": \"auto\"}}'",
        stage);
}

const std::string fsdp_v2 =
    "--fsdp full_shard --fsdp_config '{\"fsdp_transformer_layer_cls_to_wrap\": [\"MixtralDecoderLayer\"], "
    "\"xla\": "
    "true, \"xla_fsdp_v2\": true, \"xla_fsdp_grad_ckpt\": true}'";

const std::vector<Mode> modes{
    {"TwoDimensions", 4, 2, "--spmd_2d_sharding 2 --spmd_grad_chkpt --spmd_defer_init", true},
    {"TwoDimensionsWithoutSequenceParallel", 4, 2, "--spmd_2d_sharding 2 --sequence_parallel no", true},
    {"TwoDimensionsOfOne", 2, 2, "--spmd_2d_sharding 1", true},
    {"SpmdFsdp", 4, 4, "--spmd_fsdp_sharding", true},
    {"SpmdFsdpWithMeansOfBatches", 2, 2, "--spmd_fsdp_sharding", true, "llama",
     "--label_smoothing_factor 0.1 --loss_denominator hf457 "},
    {"SpmdFsdpInTwoSlices", 4, 4, "--spmd_fsdp_sharding --spmd_dcn_parallelism 2", true},
    {"FullShard", 2, 2, "--fsdp full_shard"},
    {"FullShardWithoutPrefetch", 2, 2,
     "--fsdp full_shard --fsdp_config '{\"forward_prefetch\": false, \"backward_prefetch\": "
     "\"NO_PREFETCH\"}'"},
    {"ShardGradOp", 2, 2, "--fsdp 'shard_grad_op auto_wrap'"},
    {"NoShard", 2, 2, "--fsdp no_shard"},
    {"HybridShard", 2, 2, "--fsdp hybrid_shard"},
    {"HybridShardOfTwoCopies", 4, 4, "--fsdp hybrid_shard_zero2 --spmd_dcn_parallelism 2"},
    {"AutoWrap", 2, 2, "--fsdp auto_wrap"},
    {"DeepSpeedStage0", 2, 2, deepspeed(0)},
    {"DeepSpeedStage1", 2, 2, deepspeed(1)},
    {"DeepSpeedStage2", 2, 2, deepspeed(2)},
    {"DeepSpeedStage3", 2, 2, deepspeed(3)},
    {"ZeroOneWithTensorParallel", 4, 2, "--use_zero1_optimizer --tensor_parallel_size 2"},
    {"TensorParallelWithCopiesOfHeads", 4, 1,
     "--tensor_parallel_size 4 --sequence_parallel --kv_replicator 2"},
    {"PlainData", 2, 2, ""},
    {"Pipeline", 2, 1, "--pipeline_parallel_size 2"},
    {"PipelineOfSeveralStages", 2, 1, "--pipeline_parallel_size 2 --virtual_pipeline_size 2", false, "llama",
     "--num_layer 5 "},
    {"PipelineWithoutBubble", 4, 2,
     "--pipeline_parallel_size 2 --pipeline_schedule zero_bubble --use_zero1_optimizer"},
    {"PipelineWithTensorParallel", 4, 1,
     "--pipeline_parallel_size 2 --pipeline_cuts 2 --tensor_parallel_size 2", false, "llama",
     "--num_layer 3 "},
    {"MixtralPipeline", 2, 1, "--pipeline_parallel_size 2 --pipeline_cuts balanced", false, "mixtral",
     "--num_layer 3 "},
    {"MixtralTwoDimensions", 4, 2, "--spmd_2d_sharding 2 --gmm", true, "mixtral"},
    {"MixtralFsdpV2", 2, 2, fsdp_v2, true, "mixtral"},
    {"MixtralDeepSpeed", 2, 2, deepspeed(3), false, "mixtral"},
};

class MeshModes : public test::MeshRuns, public ::testing::WithParamInterface<Mode> {
  protected:
    /// A batch of four rows: 23 samples leave a short one at the end of an epoch. Replicas that share batches
    /// fill it with masked rows; those that do not would repeat samples, as in Hugging Face, and so get 24.
    /// Likewise in evaluation.
    std::string common(bool shared) const {
        return fmt::format(
            " --config_name '{}' --max_train_samples {} --max_steps 4 --gradient_accumulation_steps 2 "
            "--logging_steps 1 --learning_rate 1e-2 --save_strategy no --do_eval --eval_strategy steps "
            "--eval_steps 2 "
            "--validation_file '{}' --max_eval_samples {} --include_num_input_tokens_seen all ",
            test::golden_path("run_clm/configs/" + GetParam().config + ".json").string(), shared ? 23 : 24,
            test::golden_path("run_clm/validation.txt").string(), shared ? 7 : 8);
    }
    static std::string batch(int rows) {
        return fmt::format("--per_device_train_batch_size {} --per_device_eval_batch_size {} ", rows, rows);
    }
};

TEST_P(MeshModes, LogsWhatOneProcessDoes) {
    const Mode& mode = GetParam();
    const std::string settings = common(mode.batch_is_global) + mode.of_both;
    const test::Outcome alone = train("alone", settings + batch(4));
    ASSERT_EQ(alone.exit_code, 0) << alone.output;
    const test::Outcome together =
        train_on(mode.processes, "together",
                 settings + batch(mode.batch_is_global ? 4 : 4 / mode.replicas) + mode.flags);
    ASSERT_EQ(together.exit_code, 0) << together.output;
    // The experts' balance loss of a batch is not the mean over its parts.
    const bool own_batches = mode.config == "mixtral" && !mode.batch_is_global;
    expect_same_records("together", "alone",
                        own_batches ? std::vector<std::string>{"eval_loss"} : std::vector<std::string>{});
    EXPECT_EQ(count_of(together.output, "***** Running training *****"), 1u) << "one process speaks";
}

INSTANTIATE_TEST_SUITE_P(Mesh, MeshModes, ::testing::ValuesIn(modes),
                         [](const auto& mode) { return mode.param.name; });

class MeshData : public test::MeshRuns {};

TEST_F(MeshData, StreamedTextIsSharedLikeFiles) {
    const std::string streamed =
        "--streaming --max_steps 5 --logging_steps 1 --save_strategy no --max_train_samples 10 ";
    ASSERT_EQ(train("alone", streamed + "--per_device_train_batch_size 4").exit_code, 0);
    const test::Outcome shared =
        train_on(2, "shared", streamed + "--per_device_train_batch_size 4 --spmd_fsdp_sharding");
    ASSERT_EQ(shared.exit_code, 0) << shared.output;
    expect_same_records("shared", "alone");
    // With separate batches the third round of ten rows is filled up, so only the first two are equal.
    const test::Outcome own = train_on(2, "own", streamed + "--per_device_train_batch_size 2 --max_steps 2");
    ASSERT_EQ(own.exit_code, 0) << own.output;
    for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(history("own")[i].at("loss").get<double>(), history("alone")[i].at("loss").get<double>(),
                    1e-3);
}

/// Rows of any length with sequence parallelism are padded so that they can be split.
TEST_F(MeshData, RowsOfAnyLengthCanBeSplit) {
    const std::string rows =
        "--packing none --pad_token eos --max_steps 3 --logging_steps 1 --save_strategy no "
        "--per_device_train_batch_size 3 ";
    ASSERT_EQ(train("alone", rows).exit_code, 0);
    const test::Outcome split = train_on(2, "split", rows + "--tensor_parallel_size 2 --sequence_parallel");
    ASSERT_EQ(split.exit_code, 0) << split.output;
    expect_same_records("split", "alone", {"total_flos"});
}

TEST_F(MeshData, CommunicationIsTimedOnRequest) {
    const std::string run = "--max_steps 3 --save_strategy no --save_final_model no --comm_stats ";
    const test::Outcome together = train_on(2, "together", run + "--fsdp full_shard");
    ASSERT_EQ(together.exit_code, 0) << together.output;
    EXPECT_EQ(count_of(together.output, "Communication: "), 1u) << together.output;
    EXPECT_EQ(count_of(together.output, "Communication: 0 collectives"), 0u) << together.output;
    const test::Outcome alone = train("alone", run);
    ASSERT_EQ(alone.exit_code, 0) << alone.output;
    EXPECT_EQ(count_of(alone.output, "one process alone has no collectives"), 1u) << alone.output;
    EXPECT_EQ(count_of(alone.output, "Communication: "), 0u) << alone.output;
}

TEST_F(MeshData, APipelineIsDescribed) {
    const std::string run =
        "--pipeline_parallel_size 2 --virtual_pipeline_size 2 --num_layer 6 --gradient_accumulation_steps 3 "
        "--pipeline_schedule zero_bubble --recompute full --spmd_debug --dry_run ";
    const test::Outcome described = train_on(2, "out", run);
    ASSERT_EQ(described.exit_code, 0) << described.output;
    for (const char* part :
         {"  pp      2  the same batches, other layers\n",
          "Pipeline of 2 ranks, zero bubble, 3 micro-batches per update:\n", "     0  embedding, 0; 2-3",
          "     1  1; 4-5, head", "% of the time (bubble) with 3", "3 are run in the order of 4",
          "weight gradients are computed at once", "Memory of pipeline rank ",
          "outside the pipeline's bubble"})
        EXPECT_EQ(count_of(described.output, part), 1u) << part << "\n" << described.output;
    EXPECT_EQ(count_of(described.output, "  model.embed_tokens.weight"), 1u) << described.output;
    EXPECT_EQ(count_of(described.output, "  model.norm.weight"), 0u) << "it is on the other rank";
    const test::Outcome refused = train_on(2, "out", run + "--memory_fraction 1e-6");
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_EQ(count_of(refused.output, "in pipeline rank "), 1u) << refused.output;
}

/// Four processes that start at the same time, without and with --overwrite_cache: one makes the tokens.
TEST_F(MeshData, OneProcessTokenizes) {
    const std::string run =
        "--max_steps 1 --save_strategy no --save_final_model no --rank_log_dir logs --log_level info ";
    for (const char* more : {"", "--overwrite_cache"}) {
        std::string said = train_on(4, "out", run + more).output;
        for (int rank = 1; rank < 4; ++rank)
            said += read_text_file(folder_ / "logs" / fmt::format("rank-{}.log", rank));
        EXPECT_EQ(count_of(said, "tokenized in"), 1u) << said;
        EXPECT_EQ(count_of(said, "found in"), 3u) << said;
        std::filesystem::remove_all(folder_ / "out");
    }
}

}  // namespace
}  // namespace drover
