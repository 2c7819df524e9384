#pragma once

#include "comm/counting_communicator.h"
#include "parallel/mesh.h"

namespace drover {

/// The mesh as its rank `rank` sees it, with communicators that count instead of sending. Ranks' tensors lie
/// on `device`. `counts` must outlive it.
Mesh counting_mesh(const Mesh& mesh, int rank, Device device, SentCounts& counts);

}  // namespace drover
