#include "run/mesh_report.h"

#include <fmt/format.h>

#include "core/number_text.h"
#include "data/sampling/replica_part.h"

namespace drover {
namespace {

std::string_view data_axis_text(Sharding sharding) {
    switch (sharding) {
        case Sharding::replicated:
            return "other batches, the same weights";
        case Sharding::zero1:
            return "other batches; optimizer state is sharded";
        case Sharding::zero2:
            return "other batches; gradients and optimizer state are sharded";
        case Sharding::zero3:
            return "other batches; weights, gradients and optimizer state are sharded";
    }
    bug("unknown sharding");
}

}  // namespace

std::string mesh_table(const MeshPlan& settings, const MachinePlace& machine, bool tokens_are_split,
                       bool every_rank) {
    const MeshShape& shape = settings.shape;
    const int ranks = shape.ranks();
    std::string text = fmt::format("{} on {}, {}:\n", counted(ranks, "process", "processes"),
                                   counted(machine.machines, "machine"), name_of(settings.sharding));
    const auto line = [&](std::string_view axis, int size, std::string_view what) {
        if (size > 1) text += fmt::format("  {:<5}{:>4}  {}\n", axis, size, what);
    };
    line("pp", shape.pp, "the same batches, other layers");
    line("dcn", shape.dcn, "other batches, whole copies of what is inside");
    line("data", shape.data, data_axis_text(settings.sharding));
    line("tp", shape.tp,
         tokens_are_split ? "the same batches, parts of every matrix and of the residual stream"
                          : "the same batches, parts of every matrix");
    if (settings.key_value_copies > 1)
        text += fmt::format("  {} neighbours along tp hold the same key/value heads\n",
                            settings.key_value_copies);
    if (every_rank) {
        text += fmt::format("  {:>5}{:>4}{:>5}{:>6}{:>4}\n", "rank", "pp", "dcn", "data", "tp");
        for (int rank = 0; rank < ranks; ++rank) {
            const MeshPlace place = place_of(shape, rank);
            text +=
                fmt::format("  {:>5}{:>4}{:>5}{:>6}{:>4}\n", rank, place.pp, place.dcn, place.data, place.tp);
        }
    }
    text.pop_back();
    return text;
}

std::string batch_text(const MeshPlan& settings, std::int64_t rows) {
    const std::int64_t replicas = settings.replicas();
    if (!settings.batch_is_global)
        return fmt::format("Every replica takes {} per micro-batch: {} on {}.", counted(rows, "row"),
                           rows * replicas, counted(replicas, "replica"));
    const std::int64_t each = ReplicaPart{.replicas = replicas}.rows_of(rows);
    return fmt::format("The micro-batch of all processes together has {}, {} on {}{}.", counted(rows, "row"),
                       each, replicas == 1 ? "1 replica" : fmt::format("each of {} replicas", replicas),
                       each * replicas == rows ? "" : " with masked rows where they do not suffice");
}

}  // namespace drover
