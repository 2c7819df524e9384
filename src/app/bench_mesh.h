#pragma once

#include <memory>
#include <optional>

#include "comm/nccl/nccl_communicators.h"
#include "parallel/mesh.h"

namespace drover {

class Backend;

/// The mesh of `drover bench`: one rank, either alone or, with `copies`, performing the steps of FSDP. Its
/// collectives are then real ones of one rank, by NCCL on a GPU and by a communication thread on the CPU.
class BenchMesh {
  public:
    /// With `timed`, communication_times() also includes a GPU's collectives.
    BenchMesh(bool copies, bool timed, Backend& backend);

    const Mesh& operator*() const { return *mesh_; }
    /// The time of the collectives so far.
    CommunicationTimes communication_times();

  private:
    std::unique_ptr<World> world_;
    std::optional<NcclCommunicators> gpu_;
    std::unique_ptr<const Mesh> mesh_;
};

}  // namespace drover
