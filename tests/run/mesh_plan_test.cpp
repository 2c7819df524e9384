#include "run/mesh_plan.h"

#include <gtest/gtest.h>

#include "args/run_settings.h"
#include "core/error.h"
#include "model/partition.h"
#include "run/engine_settings.h"
#include "run/mesh_report.h"
#include "support/errors.h"

namespace drover {
namespace {

ModelConfig config(std::int64_t heads = 8, std::int64_t key_value_heads = 2) {
    ModelConfig made;
    made.num_attention_heads = heads;
    made.num_key_value_heads = key_value_heads;
    return made;
}

RunSettings parse(const std::string& flags, int processes) {
    std::vector<std::string> words{"--output_dir", "out"};
    for (std::size_t begin = 0; begin < flags.size();) {
        const std::size_t end = std::min(flags.find(' ', begin), flags.size());
        if (end > begin) words.push_back(flags.substr(begin, end - begin));
        begin = end + 1;
    }
    return run_settings(parse_run_arguments(words, {.world_size = processes}));
}

MeshPlan settings(const std::string& flags, int processes, const MachinePlace& machine = {},
                  const ModelConfig& model = config()) {
    return plan_mesh(parse(flags, processes).mesh, model, processes, machine);
}

void expect_mesh(const MeshPlan& found, Sharding sharding, const MeshShape& shape) {
    EXPECT_EQ(found.sharding, sharding);
    EXPECT_EQ(found.shape, shape);
}

TEST(MeshPlans, TheTableOfModes) {
    expect_mesh(settings("", 4), Sharding::replicated, {.data = 4});
    expect_mesh(settings("--fsdp full_shard", 4), Sharding::zero3, {.data = 4});
    expect_mesh(settings("--fsdp auto_wrap", 4), Sharding::zero3, {.data = 4});
    expect_mesh(settings("--fsdp shard_grad_op", 4), Sharding::zero2, {.data = 4});
    expect_mesh(settings("--fsdp no_shard", 4), Sharding::replicated, {.data = 4});
    expect_mesh(settings("--fsdp full_shard --fsdp_config {\"reshard_after_forward\":false}", 4),
                Sharding::zero2, {.data = 4});
    for (int stage = 0; stage < 4; ++stage)
        expect_mesh(
            settings("--deepspeed {\"zero_optimization\":{\"stage\":" + std::to_string(stage) + "}}", 2),
            static_cast<Sharding>(stage), {.data = 2});
    expect_mesh(settings("--use_zero1_optimizer --tensor_parallel_size 2", 4), Sharding::zero1,
                {.data = 2, .tp = 2});
    expect_mesh(settings("--spmd_fsdp_sharding", 4), Sharding::zero3, {.data = 4});
    expect_mesh(settings("--spmd_fsdp_sharding --spmd_dcn_parallelism 2", 4), Sharding::zero3,
                {.dcn = 2, .data = 2});
    expect_mesh(settings("--spmd_2d_sharding 2", 8), Sharding::zero3, {.data = 4, .tp = 2});
    expect_mesh(settings("--spmd_2d_sharding 2 --spmd_dcn_parallelism 2", 8), Sharding::zero3,
                {.dcn = 2, .data = 2, .tp = 2});
}

TEST(MeshPlans, HybridShardsInsideMachines) {
    const MachinePlace two_machines{.ranks = 2, .machines = 2};
    expect_mesh(settings("--fsdp hybrid_shard", 4, two_machines), Sharding::zero3, {.dcn = 2, .data = 2});
    expect_mesh(settings("--fsdp hybrid_shard_zero2", 4, two_machines), Sharding::zero2,
                {.dcn = 2, .data = 2});
    expect_mesh(settings("--fsdp hybrid_shard", 4, {.ranks = 4}), Sharding::zero3, {.data = 4});
    test::expect_error(
        [&] { settings("--fsdp hybrid_shard", 3, {.ranks = 2, .machines = 2, .even = false}); },
        {"--fsdp hybrid_shard", "2 machines", "3 processes"});
}

TEST(MeshPlans, PipelineIsTheOutermostAxis) {
    expect_mesh(settings("--pipeline_parallel_size 4", 4), Sharding::replicated, {.pp = 4});
    expect_mesh(settings("--pipeline_parallel_size 2 --use_zero1_optimizer", 8), Sharding::zero1,
                {.pp = 2, .data = 4});
    expect_mesh(settings("--pipeline_parallel_size 2 --tensor_parallel_size 2", 8), Sharding::replicated,
                {.pp = 2, .data = 2, .tp = 2});
    expect_mesh(settings("--pipeline_parallel_size 2 --spmd_2d_sharding 2 --spmd_dcn_parallelism 2", 16),
                Sharding::zero3, {.pp = 2, .dcn = 2, .data = 2, .tp = 2});
    EXPECT_EQ(settings("--pipeline_parallel_size 2 --tensor_parallel_size 2", 8).replicas(), 2);
}

/// The processes of a stage follow each other.
TEST(MeshPlans, HybridShardsInsideMachinesOfAStage) {
    const std::string flags = "--fsdp hybrid_shard --pipeline_parallel_size 2";
    expect_mesh(settings(flags, 8, {.ranks = 2, .machines = 4}), Sharding::zero3,
                {.pp = 2, .dcn = 2, .data = 2});
    expect_mesh(settings(flags, 8, {.ranks = 4, .machines = 2}), Sharding::zero3, {.pp = 2, .data = 4});
    expect_mesh(settings(flags, 8, {.ranks = 8}), Sharding::zero3, {.pp = 2, .data = 4});
    test::expect_error([&] { settings(flags, 12, {.ranks = 4, .machines = 3}); },
                       {"the 6 processes of a pipeline stage", "machines of 4"});
}

TEST(MeshPlans, PipelineReachesTheEngine) {
    const auto engine = [](const std::string& flags) {
        const RunSettings run = parse(flags, 4);
        return engine_options(run, Precision::fp32(), config(), plan_mesh(run.mesh, config(), 4, {}),
                              Device::cpu, 2, 64)
            .pipeline;
    };
    const PipelineSettings plain = engine("--pipeline_parallel_size 4 --gradient_accumulation_steps 8");
    EXPECT_EQ(plain.schedule, PipelineScheduleKind::one_forward_one_backward);
    EXPECT_EQ(plain.chunks, 1);
    EXPECT_EQ(plain.micro_batches, 8);
    EXPECT_TRUE(plain.cuts.empty());
    const PipelineSettings cut = engine(
        "--pipeline_parallel_size 2 --virtual_pipeline_size 2 --pipeline_schedule zero_bubble "
        "--pipeline_cuts 3,7,12 --train_batch_size 16 --num_microbatches 4");
    EXPECT_EQ(cut.schedule, PipelineScheduleKind::zero_bubble);
    EXPECT_EQ(cut.chunks, 2);
    EXPECT_EQ(cut.micro_batches, 4);
    EXPECT_EQ(cut.cuts, (std::vector<int>{3, 7, 12}));
    EXPECT_EQ(engine("--pipeline_parallel_size 2 --pipeline_schedule 1f1b").schedule,
              PipelineScheduleKind::one_forward_one_backward);
    EXPECT_EQ(
        engine("--pipeline_parallel_size 2 --virtual_pipeline_size 2 --pipeline_schedule interleaved").chunks,
        2);
    EXPECT_EQ(engine("--pipeline_parallel_size 4 --pipeline_cuts balanced").cuts,
              balanced_cuts(config(), 4, {.row_length = 64}));
}

/// A replica is all processes that see the same rows.
TEST(MeshPlans, DeepSpeedsBatchCountsReplicas) {
    const auto batch = [](int rows) {
        return "--pipeline_parallel_size 2 --tensor_parallel_size 2 --per_device_train_batch_size 3 "
               "--gradient_accumulation_steps 5 --deepspeed {\"train_batch_size\":" +
               std::to_string(rows) + "}";
    };
    EXPECT_NO_THROW(parse(batch(2 * 3 * 5), 8));
    test::expect_error([&] { parse(batch(4 * 3 * 5), 8); }, {"train_batch_size is 60", "is 30"});
}

TEST(MeshPlans, WhoseTheBatchIs) {
    EXPECT_FALSE(settings("--fsdp full_shard", 2).batch_is_global);
    EXPECT_FALSE(settings("--spmd_debug", 2).batch_is_global);
    EXPECT_TRUE(settings("--spmd_fsdp_sharding", 2).batch_is_global);
    EXPECT_TRUE(
        settings("--fsdp full_shard --fsdp_config {\"xla_fsdp_v2\":true,\"xla\":true}", 2).batch_is_global);
    EXPECT_EQ(batch_text(settings("--spmd_fsdp_sharding", 4), 6),
              "The micro-batch of all processes together has 6 rows, 2 on each of 4 replicas with masked "
              "rows where "
              "they do not suffice.");
    EXPECT_EQ(batch_text(settings("--tensor_parallel_size 4", 4), 1),
              "Every replica takes 1 row per micro-batch: 1 on 1 replica.");
    EXPECT_EQ(batch_text(settings("--spmd_2d_sharding 4", 4), 1),
              "The micro-batch of all processes together has 1 row, 1 on 1 replica.");
    EXPECT_EQ(batch_text(settings("--tensor_parallel_size 2", 4), 6),
              "Every replica takes 6 rows per micro-batch: 12 on 2 replicas.");
}

/// The effect of --fsdp_config on the engine.
TEST(MeshPlans, FsdpConfigReachesTheEngine) {
    const auto engine = [](const std::string& config) {
        const RunSettings run = parse(
            "--dtype bfloat16 --fsdp full_shard" + (config.empty() ? "" : " --fsdp_config " + config), 4);
        return engine_options(run, chosen_precision(run, std::nullopt, Device::cpu));
    };
    const TrainEngineOptions plain = engine("");
    EXPECT_TRUE(plain.model.gather_ahead.forward && plain.model.gather_ahead.backward);
    EXPECT_EQ(plain.model.precision.gradients, DType::bf16);
    EXPECT_FALSE(plain.model.rope_rounding);
    EXPECT_FALSE(plain.shared_batches);
    EXPECT_FALSE(engine(R"({"forward_prefetch":false})").model.gather_ahead.forward);
    EXPECT_FALSE(engine(R"({"backward_prefetch":"NO_PREFETCH"})").model.gather_ahead.backward);
    EXPECT_EQ(engine(R"({"xla_fsdp_settings":{"fp32_reduce_scatter":true}})").model.precision.gradients,
              DType::f32);
    EXPECT_EQ(engine(R"({"xla_fsdp_settings":{"buffer_dtype":"float32"}})").model.rope_rounding, DType::f32);
    EXPECT_TRUE(engine(R"({"xla":true,"xla_fsdp_v2":true})").shared_batches);
}

TEST(MeshPlans, SequenceParallelBelongsToTwoDimensions) {
    EXPECT_TRUE(settings("--spmd_2d_sharding 2", 2).splits_tokens(32));
    EXPECT_FALSE(settings("--spmd_2d_sharding 2", 2).splits_tokens(31));
    EXPECT_FALSE(settings("--spmd_2d_sharding 2 --sequence_parallel no", 2).splits_tokens(32));
    EXPECT_FALSE(settings("--tensor_parallel_size 2", 2).splits_tokens(32));
    const MeshPlan asked = settings("--tensor_parallel_size 2 --sequence_parallel", 2);
    EXPECT_TRUE(asked.splits_tokens(32));
    test::expect_error([&] { asked.splits_tokens(31); }, {"Rows of 31 tokens", "over 2 "});
    EXPECT_FALSE(settings("--sequence_parallel", 2).splits_tokens(31));
    EXPECT_EQ(settings("--sequence_parallel", 2).explanations.size(), 1u);
}

TEST(MeshPlans, CopiesOfKeyValueHeads) {
    EXPECT_EQ(settings("--tensor_parallel_size 2", 2).key_value_copies, 1);
    EXPECT_EQ(settings("--tensor_parallel_size 8", 8).key_value_copies, 4);
    EXPECT_TRUE(settings("--tensor_parallel_size 8 --kv_replicator 4", 8).explanations.empty());
    EXPECT_EQ(settings("--tensor_parallel_size 4 --kv_replicator 4", 4).explanations.size(), 1u);
    test::expect_error([] { settings("--tensor_parallel_size 8 --kv_replicator 2", 8); }, {"need 4 copies"});
}

TEST(MeshPlans, WhatCannotBe) {
    const std::vector<std::tuple<std::string, int, std::string>> wrong{
        {"--spmd_2d_sharding 2", 3, "--spmd_2d_sharding 2 does not divide the 3 processes"},
        {"--tensor_parallel_size 2", 1, "--tensor_parallel_size 2 does not divide the 1 process of"},
        {"--spmd_fsdp_sharding --spmd_dcn_parallelism 3", 4, "3 copies of the sharded model"},
        {"--tensor_parallel_size 3", 3, "8 attention heads cannot be spread over 3"},
        {"--pipeline_parallel_size 2", 3, "--pipeline_parallel_size 2 does not divide the 3 processes"},
        {"--pipeline_parallel_size 2", 1, "--pipeline_parallel_size 2 does not divide the 1 process of"},
        {"--pipeline_parallel_size 2 --tensor_parallel_size 2", 6,
         "--pipeline_parallel_size 2 and --tensor_parallel_size 2 together do not divide the 6 processes"},
        {"--pipeline_parallel_size 2 --spmd_fsdp_sharding --spmd_dcn_parallelism 2", 6,
         "Start a multiple of 4 processes"},
        {"--pipeline_parallel_size 8 --virtual_pipeline_size 5", 8,
         "A pipeline of 40 stages needs as many layers, but the model has 32"},
        {"--pipeline_parallel_size 8 --virtual_pipeline_size 5 --pipeline_cuts balanced", 8,
         "--pipeline_parallel_size times --virtual_pipeline_size at most 32"},
        {"--pipeline_parallel_size 4 --pipeline_cuts 3,7", 4, "--pipeline_cuts 3,7 makes 3 stages"},
        {"--pipeline_parallel_size 2 --pipeline_cuts 32", 2, "leaves stage 1 of 2 without layers"},
        {"--context_parallel_size 2", 2, "context parallelism is not available yet"},
        {"--spmd_fsdp_sharding --fsdp full_shard", 2, "--fsdp and --spmd_fsdp_sharding both say"},
        {"--use_zero1_optimizer --deepspeed {}", 2, "--deepspeed and --use_zero1_optimizer both say"},
        {"--fsdp full_shard --fsdp_transformer_layer_cls_to_wrap GPT2Block", 2,
         "the blocks of this model are Llama"},
    };
    for (const auto& [flags, processes, said] : wrong)
        test::expect_error([&] { settings(flags, processes); }, {said});
}

TEST(MeshPlans, Table) {
    const MeshPlan found = settings("--spmd_2d_sharding 2", 4);
    EXPECT_EQ(mesh_table(found, {.ranks = 4}, true, false),
              "4 processes on 1 machine, ZeRO-3 (FSDP):\n"
              "  data    2  other batches; weights, gradients and optimizer state are sharded\n"
              "  tp      2  the same batches, parts of every matrix and of the residual stream");
    EXPECT_EQ(mesh_table(settings("--pipeline_parallel_size 2", 4), {.ranks = 4}, false, false),
              "4 processes on 1 machine, replicated (DDP):\n"
              "  pp      2  the same batches, other layers\n"
              "  data    2  other batches, the same weights");
    EXPECT_NE(mesh_table(found, {.ranks = 4}, true, true).find("      3   0    0     1   1"),
              std::string::npos);
}

}  // namespace
}  // namespace drover
