#include "train/engine/weights_wait.h"

namespace drover {

std::string_view why_weights_cannot_wait(const TrainEngineOptions& options, int data_ranks) {
    const RecomputePolicy& recompute = options.model.recompute;
    if (recompute.kind != Recompute::none && recompute.blocks > 0)
        return "what is recomputed is not kept (--recompute)";
    if (options.model.adapters.magnitudes)
        return "DoRA's gradients are computed from outputs that are not kept so long (use_dora)";
    const bool sums_first = options.sharding == Sharding::replicated || options.sharding == Sharding::zero1;
    if (!sums_first && data_ranks > 1)
        return "ZeRO-2 and ZeRO-3 reduce gradients as soon as they are computed";
    return {};
}

}  // namespace drover
