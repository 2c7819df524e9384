#include "train/engine/communication_plan.h"

#include <fmt/format.h>

#include "backend/planning_backend.h"
#include "core/arena.h"
#include "core/number_text.h"
#include "train/engine/planning_mesh.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

/// In the order a reader expects.
std::vector<PlannedCollective> listed(const SentCounts& counts, const Mesh& mesh) {
    std::vector<const Communicator*> axes = {&mesh.tp(),      &mesh.key_value_copies(), &mesh.data(),
                                             &mesh.dcn(),     &mesh.replicas(),         &mesh.pp(),
                                             &mesh.pp_ends(), &mesh.everyone()};
    const PipelineLinks& links = mesh.links();
    if (links.activations_out)
        axes.insert(axes.end() - 1, {links.activations_out.get(), links.gradients_out.get()});
    std::vector<PlannedCollective> list;
    for (const Communicator* axis : axes)
        for (const CollectiveKind kind :
             {CollectiveKind::reduce_scatter, CollectiveKind::all_gather, CollectiveKind::all_reduce,
              CollectiveKind::broadcast, CollectiveKind::all_to_all, CollectiveKind::send,
              CollectiveKind::barrier})
            if (const auto found = counts.find({axis->axis(), kind}); found != counts.end())
                list.push_back({.axis = axis->axis(),
                                .kind = kind,
                                .calls = found->second.calls,
                                .bytes = found->second.bytes});
    return list;
}

}  // namespace

std::vector<PlannedCollective> plan_communication(const ModelConfig& config,
                                                  const TrainEngineOptions& options, const Mesh& mesh,
                                                  Device device, std::int64_t micro_batches) {
    SentCounts counts;
    const Mesh counting = counting_mesh(mesh, mesh.rank(), device, counts);
    const auto backend = make_planning_backend(device);
    TrainEngine engine(config, options, *backend, counting);
    const Batch full = Batch::of_shape(options.model.rows, options.model.row_length);
    engine.step(std::vector<Batch>(static_cast<std::size_t>(micro_batches), full), 0);
    return listed(counts, counting);
}

std::string communication_table(const std::vector<PlannedCollective>& plan) {
    std::string text = fmt::format("Sent by this rank in every update:\n  {:<18}{:<16}{:>10}{:>14}\n", "axis",
                                   "collective", "calls", "bytes");
    std::size_t total = 0;
    for (const PlannedCollective& planned : plan) {
        text += fmt::format("  {:<18}{:<16}{:>10}{:>14}\n", planned.axis, name_of(planned.kind),
                            planned.calls, bytes_text(planned.bytes));
        total += planned.bytes;
    }
    return text + fmt::format("  {:<44}{:>14}", "all", bytes_text(total));
}

}  // namespace drover
