#pragma once

#include <memory>
#include <optional>

#include "comm/nccl/nccl_communicators.h"
#include "run/mesh_plan.h"

namespace drover {

class Backend;

/// Error that names the ranks whose device differs from the first rank's, as can happen with `--device auto`.
/// Collective.
void check_devices_alike(const ProcessGroup& ranks, Device device);

/// The mesh of a run, with the communicators for its backend's tensors. The world's own
/// communicators serve the CPU, NCCL's serve GPUs.
class DeviceMesh {
  public:
    /// A mesh of one rank if there is no world; otherwise collective. Error if ranks have different devices,
    /// or GPUs that cannot exchange data here. World and backend must outlive this object.
    DeviceMesh(World* world, const ProcessGroup& ranks, const MeshPlan& settings, Backend& backend);

    /// How many ranks use this rank's GPU, including itself; 1 on the CPU.
    int ranks_of_gpu() const { return gpus_ ? gpus_->ranks_of_gpu() : 1; }

    /// The time of this rank's collectives so far, including those on its GPU if the world's options ask for
    /// it; zero without a world.
    CommunicationTimes communication_times();

    /// From now on `observer` is told of this rank's collectives and messages, those on its GPU if the
    /// world's options ask for it; null: no observer. `under_way`: those that are in progress on the GPU.
    void observe(CollectiveObserver* observer, UnderWay under_way);

    const Mesh& operator*() const { return *mesh_; }
    const Mesh* operator->() const { return mesh_.get(); }

  private:
    World* world_;
    Stream stream_;
    std::optional<NcclCommunicators> gpus_;
    std::unique_ptr<const Mesh> mesh_;
};

}  // namespace drover
