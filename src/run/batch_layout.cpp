#include "run/batch_layout.h"

namespace drover {

BatchLayout deal_batches(const MeshPlan& plan, const Mesh& mesh, Packing packing,
                         TrainerSettings& settings) {
    BatchLayout layout;
    const ReplicaPart part{.replicas = mesh.replicas().size(), .replica = mesh.replicas().rank()};
    if (plan.batch_is_global) {
        layout.part = part;
    } else {
        settings.replicas = part.replicas;
        settings.replica = part.replica;
    }
    if (packing == Packing::none && plan.splits_tokens(0)) layout.row_multiple = mesh.tp().size();
    return layout;
}

}  // namespace drover
