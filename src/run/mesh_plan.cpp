#include "run/mesh_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "model/block_shape.h"
#include "model/config.h"
#include "model/families/family.h"
#include "model/partition.h"
#include "run/settings/run_settings.h"

namespace drover {
namespace {

/// Hugging Face looks the class up among the model's modules, so it must be the decoder block.
void check_wrapped_classes(const std::vector<std::string>& classes, const ModelConfig& config) {
    const std::string block(family_of(config).block_class);
    for (const std::string& name : classes)
        if (name != block)
            throw UsageError(
                fmt::format("transformer_layer_cls_to_wrap names {}, but the blocks of this model are {}.",
                            name, block),
                fmt::format("Write \"{}\", or leave the key out.", block));
}

/// The copies of each stage: all of the model's without a pipeline.
int copies_of_model(const MeshSettings& settings, int ranks, const MachinePlace& machine) {
    if (settings.copies) return static_cast<int>(*settings.copies);
    if (!settings.shards_inside_machines) return 1;
    if (!machine.even)
        throw Error(
            fmt::format(
                "--fsdp hybrid_shard shards inside each machine, but {} machines have different numbers "
                "of the {} processes, or they do not follow each other.",
                machine.machines, ranks),
            "Start as many processes on every machine, machine by machine, or give "
            "--spmd_dcn_parallelism the number of copies.");
    // The processes of a stage follow each other: they fill machines, or share one with other stages.
    const auto stage_ranks = static_cast<int>(ranks / settings.pipeline_parallel_size);
    if (stage_ranks < machine.ranks && machine.ranks % stage_ranks == 0) return 1;
    if (stage_ranks % machine.ranks == 0) return stage_ranks / machine.ranks;
    throw Error(
        fmt::format("--fsdp hybrid_shard shards inside each machine, but the {} processes of a pipeline "
                    "stage do not fit machines of {}.",
                    stage_ranks, machine.ranks),
        "Change --pipeline_parallel_size, or give --spmd_dcn_parallelism the number of copies.");
}

/// Error unless the axes that the flags give divide the number of processes.
void check_processes(const MeshSettings& settings, std::int64_t copies, int ranks) {
    const std::int64_t product = settings.pipeline_parallel_size * copies * settings.tensor_parallel_size;
    if (ranks % product == 0) return;
    std::vector<std::string> asked;
    if (settings.pipeline_parallel_size > 1)
        asked.push_back(fmt::format("--pipeline_parallel_size {}", settings.pipeline_parallel_size));
    if (settings.tensor_parallel_size > 1)
        asked.push_back(
            fmt::format("{} {}", settings.two_dimensional ? "--spmd_2d_sharding" : "--tensor_parallel_size",
                        settings.tensor_parallel_size));
    if (copies > 1)
        asked.push_back(fmt::format("{} copies of the sharded model (--spmd_dcn_parallelism)", copies));
    throw Error(fmt::format("{}{} do{} not divide the {} process{} of this run.", fmt::join(asked, " and "),
                            asked.size() > 1 ? " together" : "", asked.size() > 1 || copies > 1 ? "" : "es",
                            ranks, ranks == 1 ? "" : "es"),
                fmt::format("Start a multiple of {} processes (mpirun -n {}), or change the flags.", product,
                            product));
}

MeshShape mesh_shape(const MeshSettings& settings, int ranks, const MachinePlace& machine) {
    check_processes(settings, settings.copies.value_or(1), ranks);
    const int copies = copies_of_model(settings, ranks, machine);
    check_processes(settings, copies, ranks);
    const auto pp = static_cast<int>(settings.pipeline_parallel_size);
    const auto tp = static_cast<int>(settings.tensor_parallel_size);
    return {.pp = pp, .dcn = copies, .data = ranks / (pp * copies * tp), .tp = tp};
}

/// Error unless the model can be cut as asked.
void plan_pipeline(MeshPlan& plan, const MeshSettings& settings, const ModelConfig& config) {
    if (plan.shape.pp == 1) return;
    plan.pipeline = settings.pipeline;
    plan.balances_pipeline = settings.balances_pipeline;
    cut_into_stages(config, plan.stages(), plan.pipeline.cuts);
}

void plan_key_value_copies(MeshPlan& plan, const MeshSettings& settings, const ModelConfig& config) {
    check_tensor_parallel(config, plan.shape.tp);
    plan.key_value_copies = key_value_copies(config, plan.shape.tp);
    if (!settings.key_value_copies) return;
    const std::int64_t asked = *settings.key_value_copies;
    if (asked < plan.key_value_copies)
        throw UsageError(
            fmt::format("--kv_replicator {}: {} key/value heads need {} copies each for {} tensor-parallel "
                        "processes.",
                        asked, config.num_key_value_heads, plan.key_value_copies, plan.shape.tp),
            fmt::format("Use --kv_replicator {}, or leave it out.", plan.key_value_copies));
    if (asked > plan.key_value_copies)
        plan.explanations.push_back(fmt::format(
            "--kv_replicator {}: {} copies of each key/value head suffice for {} tensor-parallel processes.",
            asked, plan.key_value_copies, plan.shape.tp));
}

void plan_sequence_parallel(MeshPlan& plan, const MeshSettings& settings) {
    using Choice = MeshPlan::SequenceParallel;
    if (settings.sequence_parallel) {
        const bool asked = *settings.sequence_parallel;
        plan.sequence_parallel = asked ? Choice::required : Choice::no;
        if (asked && plan.shape.tp == 1)
            plan.explanations.push_back(
                "Sequence parallelism: there is one tensor-parallel process, so nothing is split.");
    } else if (settings.two_dimensional && settings.tensor_parallel_size > 1) {
        plan.sequence_parallel = Choice::where_possible;
    }
}

}  // namespace

bool MeshPlan::splits_tokens(std::int64_t row_length) const {
    if (shape.tp == 1 || sequence_parallel == SequenceParallel::no) return false;
    if (row_length % shape.tp == 0) return true;
    if (sequence_parallel == SequenceParallel::where_possible) return false;
    throw Error(
        fmt::format("Rows of {} tokens cannot be split over {} tensor-parallel processes.", row_length,
                    shape.tp),
        fmt::format("Sequence parallelism needs rows of a multiple of {} tokens: change their length, or "
                    "switch it off.",
                    shape.tp));
}

MeshPlan plan_mesh(const MeshSettings& settings, const ModelConfig& config, int ranks,
                   const MachinePlace& machine) {
    check_wrapped_classes(settings.wrapped_classes, config);
    MeshPlan plan{.shape = mesh_shape(settings, ranks, machine),
                  .sharding = settings.sharding,
                  .batch_is_global = settings.batch_is_global};
    plan_pipeline(plan, settings, config);
    plan_key_value_copies(plan, settings, config);
    plan_sequence_parallel(plan, settings);
    if (plan.shape.data == 1 && plan.sharding != Sharding::replicated && ranks > 1)
        plan.explanations.push_back(fmt::format(
            "{}: the data axis has one process, so nothing is sharded over it.", name_of(plan.sharding)));
    return plan;
}

}  // namespace drover
