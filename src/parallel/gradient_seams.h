#pragma once

#include <vector>

#include "parallel/store_layout.h"

namespace drover {

/// Starts the sums over the tensor-parallel axis that a unit's gradients need before anything else: norm
/// weights when each rank saw only its share of the tokens, and key/value heads that several ranks hold a
/// copy of. `gradients` are the unit's storages on this rank. Collectives that are started later on the same
/// tensors come after these.
void start_tensor_parallel_sums(Stream stream, const Mesh& mesh, bool tokens_are_split,
                                const UnitPlacement& unit, const std::vector<Tensor>& gradients,
                                std::vector<Pending>& pending);

}  // namespace drover
