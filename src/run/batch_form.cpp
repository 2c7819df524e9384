#include "run/batch_form.h"

namespace drover {

BatchForm deal_batches(const MeshPlan& mesh_settings, const Mesh& mesh, Packing packing,
                       TrainerSettings& settings) {
    BatchForm form;
    const BatchShare replica{.parts = mesh.replicas().size(), .part = mesh.replicas().rank()};
    if (mesh_settings.batch_is_global) {
        form.share = replica;
    } else {
        settings.replicas = replica.parts;
        settings.replica = replica.part;
    }
    if (packing == Packing::none && mesh_settings.splits_tokens(0)) form.row_multiple = mesh.tp().size();
    return form;
}

}  // namespace drover
