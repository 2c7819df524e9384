#include "run/mesh_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "model/block_shape.h"

namespace drover {
namespace {

/// Which sharding an argument asks for.
struct ShardingChoice {
    std::string asked_by;
    Sharding sharding;
};

Sharding fsdp_sharding(const FsdpSettings& fsdp) {
    switch (fsdp.sharding) {
        case FsdpSettings::Sharding::no_shard:
            return Sharding::replicated;
        case FsdpSettings::Sharding::shard_grad_op:
        case FsdpSettings::Sharding::hybrid_shard_zero2:
            return Sharding::zero2;
        case FsdpSettings::Sharding::full_shard:
        case FsdpSettings::Sharding::hybrid_shard:
            // Weights that stay gathered between forward and backward are what ZeRO-2 keeps.
            return fsdp.reshard_after_forward ? Sharding::zero3 : Sharding::zero2;
    }
    bug("unknown sharding");
}

bool is_hybrid(const FsdpSettings& fsdp) {
    return fsdp.sharding == FsdpSettings::Sharding::hybrid_shard ||
           fsdp.sharding == FsdpSettings::Sharding::hybrid_shard_zero2;
}

Sharding stage_sharding(int stage) {
    static constexpr std::array stages{Sharding::replicated, Sharding::zero1, Sharding::zero2,
                                       Sharding::zero3};
    return stages[static_cast<std::size_t>(stage)];
}

Sharding chosen_sharding(const RunArguments& run) {
    std::vector<ShardingChoice> choices;
    if (run.fsdp) choices.push_back({"--fsdp", fsdp_sharding(*run.fsdp)});
    if (run.deepspeed) choices.push_back({"--deepspeed", stage_sharding(run.deepspeed->stage)});
    if (run.arguments.integer("spmd_2d_sharding") > 0)
        choices.push_back({"--spmd_2d_sharding", Sharding::zero3});
    if (run.arguments.flag("spmd_fsdp_sharding"))
        choices.push_back({"--spmd_fsdp_sharding", Sharding::zero3});
    if (run.arguments.flag("use_zero1_optimizer"))
        choices.push_back({"--use_zero1_optimizer", Sharding::zero1});
    if (choices.empty()) return Sharding::replicated;
    if (choices.size() > 1)
        throw UsageError(fmt::format("{} and {} both say how to shard the model.", choices[0].asked_by,
                                     choices[1].asked_by),
                         "Keep one of them.");
    return choices[0].sharding;
}

void check_available(const Arguments& arguments) {
    for (const char* name : {"pipeline_parallel_size", "virtual_pipeline_size", "context_parallel_size"})
        if (const std::int64_t size = arguments.integer(name); size > 1)
            throw UsageError(fmt::format("--{} is {}, but {} parallelism is not available yet.", name, size,
                                         name[0] == 'c' ? "context" : "pipeline"),
                             "Leave it out; --tensor_parallel_size and the sharding modes can spread a model "
                             "over processes.");
}

/// Hugging Face looks for the class among the model's modules, and so must find the decoder block.
void check_wrapped_classes(const FsdpSettings& fsdp, const ModelConfig& config) {
    const std::string block = config.has_experts() ? "MixtralDecoderLayer" : "LlamaDecoderLayer";
    for (const std::string& name : fsdp.wrap_classes)
        if (name != block)
            throw UsageError(
                fmt::format("transformer_layer_cls_to_wrap names {}, but the blocks of this model are {}.",
                            name, block),
                fmt::format("Write \"{}\", or leave the key out.", block));
}

int dcn_groups(const RunArguments& run, int ranks, const MachinePlace& machine) {
    const auto asked = static_cast<int>(run.arguments.integer("spmd_dcn_parallelism"));
    if (!run.fsdp || !is_hybrid(*run.fsdp) || run.arguments.given("spmd_dcn_parallelism")) return asked;
    if (!machine.even)
        throw Error(
            fmt::format(
                "--fsdp hybrid_shard shards inside each machine, but {} machines have different numbers "
                "of the {} processes, or they do not follow each other.",
                machine.machines, ranks),
            "Start as many processes on every machine, machine by machine, or give "
            "--spmd_dcn_parallelism the number of copies.");
    return machine.machines;
}

MeshShape mesh_shape(const RunArguments& run, int ranks, const MachinePlace& machine) {
    const auto tp = static_cast<int>(run.arguments.integer("tensor_parallel_size"));
    const int dcn = dcn_groups(run, ranks, machine);
    if (ranks % (tp * dcn) != 0) {
        const char* axis =
            run.arguments.integer("spmd_2d_sharding") > 0 ? "--spmd_2d_sharding" : "--tensor_parallel_size";
        std::string asked = tp > 1 ? fmt::format("{} {}", axis, tp) : "";
        if (dcn > 1)
            asked += fmt::format("{}{} copies of the sharded model (--spmd_dcn_parallelism)",
                                 asked.empty() ? "" : " and ", dcn);
        throw Error(fmt::format("{} do{} not divide the {} process{} of this run.", asked,
                                dcn > 1 ? "" : "es", ranks, ranks == 1 ? "" : "es"),
                    fmt::format("Start a multiple of {} processes (mpirun -n {}), or change the flags.",
                                tp * dcn, tp * dcn));
    }
    return {.dcn = dcn, .data = ranks / (tp * dcn), .tp = tp};
}

void read_key_value_copies(MeshSettings& settings, const Arguments& arguments, const ModelConfig& config) {
    check_tensor_parallel(config, settings.shape.tp);
    settings.key_value_copies = key_value_copies(config, settings.shape.tp);
    if (!arguments.given("kv_replicator")) return;
    const std::int64_t asked = arguments.integer("kv_replicator");
    if (asked < settings.key_value_copies)
        throw UsageError(
            fmt::format("--kv_replicator {}: {} key/value heads need {} copies each for {} tensor-parallel "
                        "processes.",
                        asked, config.num_key_value_heads, settings.key_value_copies, settings.shape.tp),
            fmt::format("Use --kv_replicator {}, or leave it out.", settings.key_value_copies));
    if (asked > settings.key_value_copies)
        settings.explanations.push_back(fmt::format(
            "--kv_replicator {}: {} copies of each key/value head suffice for {} tensor-parallel processes.",
            asked, settings.key_value_copies, settings.shape.tp));
}

void read_sequence_parallel(MeshSettings& settings, const Arguments& arguments) {
    using Choice = MeshSettings::SequenceParallel;
    if (arguments.given("sequence_parallel")) {
        const bool asked = arguments.flag("sequence_parallel");
        settings.sequence_parallel = asked ? Choice::asked_for : Choice::no;
        if (asked && settings.shape.tp == 1)
            settings.explanations.push_back(
                "--sequence_parallel: there is one tensor-parallel process, so nothing is split.");
    } else if (arguments.integer("spmd_2d_sharding") > 1) {
        settings.sequence_parallel = Choice::where_possible;
    }
}

}  // namespace

bool MeshSettings::splits_tokens(std::int64_t row_length) const {
    if (shape.tp == 1 || sequence_parallel == SequenceParallel::no) return false;
    if (row_length % shape.tp == 0) return true;
    if (sequence_parallel == SequenceParallel::where_possible) return false;
    throw Error(fmt::format("Rows of {} tokens cannot be split over {} tensor-parallel processes.",
                            row_length, shape.tp),
                fmt::format("With --sequence_parallel, make --block_size a multiple of {}.", shape.tp));
}

MeshSettings mesh_settings(const RunArguments& run, const ModelConfig& config, int ranks,
                           const MachinePlace& machine) {
    check_available(run.arguments);
    if (run.fsdp) check_wrapped_classes(*run.fsdp, config);
    MeshSettings settings;
    settings.sharding = chosen_sharding(run);
    settings.shape = mesh_shape(run, ranks, machine);
    settings.batch_is_global = run.batch_is_global;
    read_key_value_copies(settings, run.arguments, config);
    read_sequence_parallel(settings, run.arguments);
    if (settings.shape.data == 1 && settings.sharding != Sharding::replicated && ranks > 1)
        settings.explanations.push_back(fmt::format(
            "{}: the data axis has one process, so nothing is sharded over it.", name_of(settings.sharding)));
    return settings;
}

}  // namespace drover
